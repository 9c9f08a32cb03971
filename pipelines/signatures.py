"""Request signatures: MinHash over the words of a request, so that near-copies are found without the text.

Made in stage 2, where the text is in hand, for many texts at once: words and shingles come of numpy over the UTF-8 bytes,
MinHash of rensa, and no loop of Python goes over texts or words. A signature is a prefix, which says how it was made, and one byte
for each permutation: the low byte of its minimum. Two texts agree by chance in 1 of 256 of them, which the estimate takes
into account; four times the room for the whole minima would tell hardly more.

Words are runs of letters and digits, in lower case; a character of three and more bytes (Chinese, Japanese, Thai and the like)
begins a word of its own, since those are written without spaces. Shingles are the k words from each word on, round the text's
end to its beginning again, so that a word counts k times wherever it stands: with k = 5 one changed word of n leaves a
similarity of (n - 5) / (n + 5). Below 45 words, where a number makes another task, that is less than 0.8.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
from rensa import RMinHash  # pyright: ignore[reportAttributeAccessIssue]  # its extension has no stubs

from pipelines.config import GroupsConfig

pc: Any = pyarrow.compute
"""Its functions are made when it is imported, so no checker knows them."""

PREFIX = 4
"""Bytes before the permutations."""

MAX_CHARACTERS = 1 << 18
"""Of a longer request only so many count: nobody asks at such length, and what pastes a whole log in must not need its memory."""

_BLOCK_BYTES = 1 << 17
"""Text that is worked on at once: what numpy makes of it stays in the processor's cache."""
_BLOCK_ROWS = 128
"""Signatures that leave rensa at once, as numbers of Python: few, so that their memory is used again."""
_WORD_BYTES = 256
"""By so many bytes a word is known; more of them are data and no words."""
_SEED = 1

_Bytes = npt.NDArray[np.uint8]
_Hashes = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.int64]

_NO_WORD, _WORD_OF_ITS_OWN = r"[^\pL\pN\pM]+", r"[^\x{0}-\x{7ff}]"
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
_WORDS, _SHINGLES, _MIXED = (np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93))


@dataclass(frozen=True)
class Making:
    """How signatures are made; only those that were made in one way can be compared."""

    permutations: int = 128
    words: int = 5
    """In a shingle."""
    min_words: int = 12
    """Texts of fewer have no signature."""

    @classmethod
    def of(cls, groups: GroupsConfig) -> Making:
        """The way of a workspace."""
        return cls(groups.near_permutations, groups.near_words, groups.near_min_words)

    @property
    def prefix(self) -> bytes:
        """Begins every signature that is made like this; not of it is `min_words`, which changes no signature."""
        told = f"1 {RMinHash.ALGORITHM_VERSION} {self.permutations} {self.words} {_SEED}"
        return zlib.crc32(told.encode()).to_bytes(PREFIX, "big")


def request_text(request: Sequence[Mapping[str, Any]]) -> str | None:
    """What was asked, of the turns before the first sampled one; None where they hold no text.

    Only what stands behind the last assistant turn: earlier ones are examples or an earlier conversation, and hundreds of
    tasks that share their examples are no copies of each other.
    """
    told: list[str] = []
    for turn in reversed(request):
        if turn["role"] == "assistant":
            break
        content = turn.get("content")
        parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
        texts = [part if isinstance(part, str) else part.get("text") for part in parts if isinstance(part, str | dict)]
        told[:0] = [text for text in texts if isinstance(text, str)]
    return "\n".join(told) or None


def signatures(texts: Sequence[str | None], making: Making) -> list[bytes | None]:
    """The signature of each text, None where it has too few words: a pure function of the text, whatever stands beside it."""
    if not texts:
        return []
    table, enough = matrix_of(texts, making)
    prefixed = np.empty((len(table), PREFIX + making.permutations), np.uint8)
    prefixed[:, :PREFIX] = np.frombuffer(making.prefix, np.uint8)
    prefixed[:, PREFIX:] = table
    width = pa.binary(prefixed.shape[1])
    made = pa.FixedSizeBinaryArray.from_buffers(width, len(prefixed), [None, pa.py_buffer(prefixed)])
    return pc.if_else(pa.array(enough), made, pa.scalar(None, width)).to_pylist()


def matrix_of(texts: Sequence[str | None], making: Making) -> tuple[_Bytes, npt.NDArray[np.bool_]]:
    """(texts, permutations), and which texts have words enough; the rows of others say nothing."""
    table = np.empty((len(texts), making.permutations), np.uint8)
    enough = np.empty(len(texts), np.bool_)
    pack = struct.Struct(f"<{making.permutations}I").pack
    scratch = _Scratch(0)
    for first, block in _blocks(texts):
        text, offsets = _bytes_of(block)
        if len(text) > scratch.room:
            scratch = _Scratch(max(len(text), min(_BLOCK_BYTES, 2 * len(text))))
        hashes, bounds = _shingles(text, offsets, making.words, scratch)
        enough[first : first + len(bounds) - 1] = np.diff(bounds) >= making.min_words
        for start in range(0, len(bounds) - 1, _BLOCK_ROWS):
            rows = bounds[start : start + _BLOCK_ROWS + 1]
            flat, ends = hashes[rows[0] : rows[-1]], (rows - rows[0]).astype(np.uint64)
            digests = RMinHash.digest_matrix_from_flat_token_hashes(flat, ends, making.permutations, _SEED).to_rows()
            minima = np.frombuffer(b"".join([pack(*digest) for digest in digests]), np.uint8)
            table[first + start : first + start + len(digests)] = minima[::4].reshape(len(digests), -1)
    return table, enough


def read(stored: pa.ChunkedArray | pa.Array, making: Making) -> tuple[_Bytes, _Places]:
    """(n, permutations) of stored signatures, and at which places these stand: those that were made in another way are left out."""
    plain = stored.combine_chunks() if isinstance(stored, pa.ChunkedArray) else stored
    width = PREFIX + making.permutations
    same = pc.and_(pc.equal(pc.binary_length(plain), width), pc.starts_with(plain, making.prefix))
    places = np.flatnonzero(pc.fill_null(same, False).to_numpy(zero_copy_only=False))
    kept = plain.take(pa.array(places)).cast(pa.binary(width))
    data = np.frombuffer(kept.buffers()[1] or b"", np.uint8)[kept.offset * width : (kept.offset + len(kept)) * width]
    return data.reshape(-1, width)[:, PREFIX:], places


def _folded(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """In texts that are more than ASCII one way to write each character, and spaces for all signs; each ends in a space."""
    plain = pc.string_is_ascii(texts)
    if not pc.all(plain).as_py():
        wider = pc.invert(plain)
        others = pc.utf8_lower(pc.utf8_normalize(texts.filter(wider), form="NFKC"))
        for pattern, spaced in ((_NO_WORD, " "), (_WORD_OF_ITS_OWN, r" \0")):
            others = pc.replace_substring_regex(others, pattern=pattern, replacement=spaced)
        texts = pc.replace_with_mask(texts, wider, others)
    return pc.binary_join_element_wise(texts, *(pa.scalar(text, pa.large_string()) for text in ("", " ")))


def _blocks(texts: Sequence[str | None]) -> Iterator[tuple[int, list[str]]]:
    """(place of the first, texts cut to what counts), a block after the other."""
    block, room = list[str](), _BLOCK_BYTES
    for place, text in enumerate(texts):
        text = (text or "")[:MAX_CHARACTERS]
        room -= len(text) + 1
        if room < 0 and block:
            yield place - len(block), block
            block, room = [], _BLOCK_BYTES - len(text) - 1
        block.append(text)
    if block:
        yield len(texts) - len(block), block


def _bytes_of(block: list[str]) -> tuple[_Bytes, _Places]:
    """The bytes of a block's texts, each of which ends in a space, and where each begins and ends."""
    joined = " ".join([*block, ""])
    offsets = np.zeros(len(block) + 1, np.int64)
    if joined.isascii():
        np.cumsum([len(text) + 1 for text in block], out=offsets[1:])
        return np.frombuffer(joined.encode("ascii"), np.uint8), offsets
    folded = _folded(pa.array(block, pa.large_string()))
    np.cumsum(pc.binary_length(folded).to_numpy(), out=offsets[1:])
    return np.frombuffer(folded.buffers()[2], np.uint8)[: offsets[-1]], offsets


class _Scratch:
    """Arrays that one block after the other is worked on in: fresh ones would cost more, in pages, than the work."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.letters = np.zeros(room + 8, np.uint8)  # eight bytes are read from any place on
        self.bytes = np.empty(room, np.uint8)
        self.inside = np.zeros(room + 1, np.bool_)
        self.flags = np.empty(room, np.bool_)
        self.starts = np.empty(room // 2 + 1, np.int64)
        self.lengths = np.empty(room // 2 + 1, np.int64)
        self.words = np.empty(room // 2 + 1, np.uint64)
        self.hashes = np.empty(room // 2 + 1, np.uint64)
        self.spare = np.empty(room // 2 + 1, np.uint64)


def _shingles(text: _Bytes, offsets: _Places, size: int, scratch: _Scratch) -> tuple[_Hashes, _Places]:
    """One hash for each word, of it and the words behind it; and where the words of each row begin and end among all.

    The hashes stand in the scratch, until the next block.
    """
    words, bounds = _hashed_words(text, offsets, scratch)
    hashes = scratch.hashes[: len(words)]
    np.copyto(hashes, words)
    for step in range(1, size):
        hashes *= _SHINGLES
        hashes[:-step] += words[step:]
    # the last words of a row go on at its beginning, and not in the next row
    filled = bounds[1:] > bounds[:-1]
    firsts, counts = bounds[:-1][filled, None], np.diff(bounds)[filled, None]
    within = np.maximum(counts - np.arange(1, size), 0)
    ends = words[firsts + within]
    for step in range(1, size):
        ends = ends * _SHINGLES + words[firsts + (within + step) % counts]
    hashes[firsts + within] = ends
    _fold(hashes, 32, scratch)
    hashes *= _MIXED
    _fold(hashes, 29, scratch)
    return hashes, bounds


def _hashed_words(text: _Bytes, offsets: _Places, scratch: _Scratch) -> tuple[_Hashes, _Places]:
    """A hash of each word of a block, in order, and where the words of each row begin and end."""
    size = len(text)
    letters, shifted, flags = scratch.letters[:size], scratch.bytes[:size], scratch.flags[:size]
    before, inside = scratch.inside[:size], scratch.inside[1 : size + 1]
    np.bitwise_or(text, 0x20, out=letters)
    np.less(np.subtract(letters, ord("a"), out=shifted), 26, out=inside)
    np.less(np.subtract(text, ord("0"), out=shifted), 10, out=flags)
    inside |= flags
    if text.max(initial=0) >= 0x80:
        np.greater_equal(text, 0x80, out=flags)
        inside |= flags
        np.copyto(letters, text, where=flags)
    edges = np.flatnonzero(np.not_equal(inside, before, out=flags))  # each row ends between words
    number = len(edges) // 2
    starts, lengths, hashes = scratch.starts[:number], scratch.lengths[:number], scratch.words[:number]
    np.copyto(starts, edges[0::2])
    np.subtract(edges[1::2], starts, out=lengths)
    # eight bytes from any place on, read at once; what lies behind the word is masked
    eight = np.ndarray((size + 1,), "<u8", buffer=scratch.letters, strides=(1,))
    np.take(_FIRST_BYTES, lengths, mode="clip", out=hashes)
    hashes &= eight[starts]
    hashes *= _WORDS
    _fold(hashes, 32, scratch)
    longer, place = np.flatnonzero(np.greater(lengths, 8, out=scratch.flags[:number])), 8
    while longer.size and place < _WORD_BYTES:
        piece = eight[starts[longer] + place] & _FIRST_BYTES.take(lengths[longer] - place, mode="clip")
        mixed = (hashes[longer] ^ piece) * _SHINGLES
        hashes[longer] = mixed ^ (mixed >> np.uint64(31))
        place += 8
        longer = longer[lengths[longer] > place]
    return hashes, np.searchsorted(starts, offsets)


def _fold(hashes: _Hashes, bits: int, scratch: _Scratch) -> None:
    """The high bits into the low ones."""
    hashes ^= np.right_shift(hashes, np.uint64(bits), out=scratch.spare[: len(hashes)])


assert sys.byteorder == "little", "signatures are read as little-endian numbers"
