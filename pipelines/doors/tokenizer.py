"""The door to the base model's tokenizer.json: token ids as the bytes that they spell, and back. No torch, no transformers.

Only byte-level tokenizers (GPT-2's kind, which SmolLM2, Llama 3 and Qwen share) say exactly which bytes each id spells;
any other is none for this purpose.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path


class Spelling:
    """A byte-level tokenizer."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer  # 0.1 s that most landings do not need

        self._tokenizer = Tokenizer.from_file(str(path))
        self._added = {number: added.content for number, added in self._tokenizer.get_added_tokens_decoder().items()}

    def pieces(self, ids: Sequence[int]) -> list[bytes] | None:
        """The bytes that each id spells; None where one is no id of this tokenizer."""
        found: list[bytes] = []
        for number in ids:
            text = self._added.get(number)
            if text is not None:
                found.append(text.encode())
                continue
            text = self._tokenizer.id_to_token(number) if type(number) is int and 0 <= number < 1 << 32 else None
            if text is None:
                return None
            try:
                found.append(bytes(_BYTES[character] for character in text))
            except KeyError:
                return None
        return found

    def added(self, number: int) -> bool:
        """Whether an id stands for a marker (end of turn) and not for text."""
        return number in self._added

    def ids(self, text: str) -> list[int]:
        """The ids of a text, without markers around it."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids


@cache
def spelling_of(path: Path) -> Spelling | None:
    """The tokenizer of a file; None where there is no such file or it is of another kind."""
    try:
        decoder = json.loads(path.read_text(encoding="utf-8")).get("decoder") or {}
        kinds = {decoder.get("type"), *(part.get("type") for part in decoder.get("decoders", ()))}
        return Spelling(path) if "ByteLevel" in kinds else None
    except Exception:  # the library raises bare Exception for a file it cannot read
        return None


def _byte_characters() -> dict[str, int]:
    """GPT-2's table: printable bytes stand for themselves, the others for characters from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_characters()
