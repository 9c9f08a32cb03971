"""Many records screened at once: one search, and a few passes of numpy, over the texts of hundreds of records.

Says the same as `Screen.is_clean` of each text, or less: what is escaped twice, quoted inside a string or stands under a
key that tells something is left to `is_clean`, and so is every text in which the search found anything. Texts are joined by
NUL bytes, which no JSON text holds, so that a match begins in the text that it is about; where it ends does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipelines.landing.screening import Screen, names_header

BLOCK_BYTES = 1 << 20
"""Bytes of text that are screened at once: few enough to stay in a processor's cache."""

_MOST_HITS = 64
"""Matches in a block behind which its texts are searched one by one: a match without an end reads to the end of the block."""

_LONGEST_KEY = 256
_BETWEEN = b"\0"
_SPACE = 32
_QUOTE, _COLON, _BACKSLASH, _BRACKET = b'":\\['
_SIMPLE = b"ntrfb/"
_RESOLVED = np.arange(256, dtype=np.uint8)
_RESOLVED[list(_SIMPLE)] = list(b"\n\t\r\f\b/")
_IS_SIMPLE = np.zeros(256, bool)
_IS_SIMPLE[list(_SIMPLE)] = True

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


class BlockScreen:
    """Judges texts under one rule set."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._fine: set[bytes] = set()
        """Keys that say nothing."""

    def clean(self, texts: Sequence[bytes]) -> list[bool]:
        """Of each normalised text whether redaction would change nothing in its value; False where the walk has to say."""
        judged: list[bool] = []
        block: list[bytes] = []
        num_bytes = 0
        for text in texts:
            block.append(text)
            num_bytes += len(text)
            if num_bytes >= BLOCK_BYTES:
                judged += self._judged(block)
                block, num_bytes = [], 0
        return judged + self._judged(block)

    def _judged(self, texts: list[bytes]) -> list[bool]:
        if len(texts) < 2:
            return [self.screen.is_clean(text) for text in texts]
        unsure, matching = self._unsure(texts)
        return [
            number not in matching and (not doubtful or self.screen.is_clean(texts[number]))
            for number, doubtful in enumerate(unsure.tolist())
        ]

    def _unsure(self, texts: list[bytes]) -> tuple[npt.NDArray[np.bool_], set[int]]:
        """Which texts have to be looked at one by one, and the numbers of those that go to the walk at once."""
        unsure = np.zeros(len(texts), bool)
        joined = np.frombuffer(_BETWEEN.join([b"", *texts, b""]), np.uint8)
        borders = np.flatnonzero(joined == 0)
        if len(borders) != len(texts) + 1:  # a NUL byte that is no border: no JSON
            return ~unsure, set()
        plain = _without_escapes(joined, borders[:-1] + 1, unsure)
        if unsure.sum() > len(texts) // 2:  # texts full of JSON inside strings: nothing is gained
            return ~np.zeros_like(unsure), set()
        borders = borders if plain is joined else np.flatnonzero(plain == 0)
        starts = borders[:-1] + 1
        for doubtful in np.flatnonzero(unsure).tolist():
            plain[starts[doubtful] : borders[doubtful + 1]] = _SPACE
        quotes = np.flatnonzero(plain == _QUOTE)
        self._refuse_keys(plain, quotes, starts, unsure)
        for listing in np.unique(_texts_at(quotes[plain[quotes - 1] == _BRACKET], starts)).tolist():
            if names_header(plain[starts[listing] : borders[listing + 1]].tobytes()):
                unsure[listing] = True
        return unsure, self._matching(plain.tobytes(), starts, unsure)

    def _refuse_keys(self, plain: Bytes, quotes: Places, starts: Places, unsure: npt.NDArray[np.bool_]) -> None:
        """Texts with a key that tells something: keys end where a colon follows a quote, and begin at the quote before."""
        ends = np.flatnonzero(plain[quotes + 1] == _COLON)
        firsts, ends = quotes[ends - 1] + 1, quotes[ends]
        sizes = ends - firsts
        for size in np.unique(sizes).tolist():
            if size < 0:  # a text that begins with a colon, and no key
                continue
            of_size = firsts[sizes == size]
            if size == 0 or size > _LONGEST_KEY:
                unsure[_texts_at(of_size, starts)] = True
                continue
            names = np.lib.stride_tricks.sliding_window_view(plain, size)[of_size].view(f"V{size}").ravel()
            listed: list[bytes] = names.tolist()
            telling = {name for name in set(listed) - self._fine if not self._says_nothing(name)}
            if telling:
                where = [place for place, name in zip(of_size.tolist(), listed, strict=True) if name in telling]
                unsure[_texts_at(np.array(where), starts)] = True

    def _says_nothing(self, name: bytes) -> bool:
        fine = self.screen.is_fine(name)
        if fine and len(self._fine) < self.screen.MOST_KEYS:
            self._fine.add(name)
        return fine

    def _matching(self, plain: bytes, starts: Places, unsure: npt.NDArray[np.bool_]) -> set[int]:
        """Texts in which a rule about texts may match: whether one does, the walk finds out as fast as `is_clean`."""
        matching: set[int] = set()
        following, rules = 0, self.screen.rules
        for _ in range(_MOST_HITS):
            if following == len(starts) or (place := rules.first_match(plain, int(starts[following]) - 1)) is None:
                return matching
            hit = int(_texts_at(np.array([place + 1]), starts)[0])  # it may begin with the NUL before its text
            following = hit + 1
            end = len(plain) if following == len(starts) else int(starts[following])
            if rules.is_likely(plain[int(starts[hit]) - 1 : end]):
                matching.add(hit)
        unsure[following:] = True
        return matching


def _texts_at(places: Places, starts: Places) -> Places:
    """Numbers of the texts in which places are."""
    return np.searchsorted(starts, places, "right") - 1


def _without_escapes(joined: Bytes, starts: Places, unsure: npt.NDArray[np.bool_]) -> Bytes:
    """The texts with their simple escapes resolved; a text with others is unsure, and what comes of it is of no matter."""
    escapes = np.flatnonzero(joined == _BACKSLASH)
    if len(escapes) == 0:
        return joined
    kinds = joined[escapes + 1]
    simple = _IS_SIMPLE[kinds]
    if not simple.all():
        unsure[_texts_at(escapes[~simple], starts)] = True
    plain = joined.copy()
    plain[escapes + 1] = _RESOLVED[kinds]
    kept = np.ones(len(joined), bool)
    kept[escapes] = False
    return plain[kept]
