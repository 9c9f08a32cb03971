"""The beginning of a file, read and parsed once, for every format's `detect`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import pydantic_core

from pipelines.landing.opening import read_log

HEAD_BYTES = 1 << 20
"""How much of a file `detect` gets to see."""

NUM_LINES = 20
BOM = b"\xef\xbb\xbf"


class Head:
    """A file's first bytes under several readings; each is made when first asked for."""

    def __init__(self, path: Path, raw: bytes | None = None) -> None:
        """`raw`: its first unpacked bytes; None: read them. Raises OSError where it cannot be read."""
        self.path = path
        """For formats whose files stand in a tree of their own; never alone a reason to say yes."""
        self.raw = read_log(path, HEAD_BYTES) if raw is None else raw

    @cached_property
    def text(self) -> bytes:
        """Without byte order mark and leading white space, and without the NUL bytes that a power cut leaves."""
        return self.raw.removeprefix(BOM).lstrip(b" \t\r\n\v\f\0")

    @cached_property
    def is_empty(self) -> bool:
        """Nothing but white space and NUL bytes."""
        return not self.text

    @cached_property
    def values(self) -> list[Any]:
        """The values of the first lines that are whole JSON: a torn first line must not hide what a file is."""
        found = []
        for line in self.raw.removeprefix(BOM).split(b"\n", NUM_LINES)[:NUM_LINES]:
            try:
                found.append(orjson.loads(line.strip(b"\0")))
            except orjson.JSONDecodeError:
                continue
        return found

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Those of `values` that are objects: the first records of a JSONL file."""
        return [value for value in self.values if isinstance(value, dict)]

    @cached_property
    def document(self) -> Any:
        """The first JSON value of the file, as far as it is there (a cut string or list ends where the bytes do).

        None where the file does not begin with an object or array. Of a JSONL file it is the first line's.
        """
        if self.text[:1] not in (b"{", b"["):
            return None
        if self.values and self.text.split(b"\n", 1)[0].strip():
            try:
                return orjson.loads(self.text.split(b"\n", 1)[0])
            except orjson.JSONDecodeError:
                pass
        try:
            return orjson.loads(self.text)
        except orjson.JSONDecodeError:
            pass
        try:
            return pydantic_core.from_json(self.text, allow_partial=True)
        except ValueError:
            return None

    @cached_property
    def object(self) -> dict[str, Any]:
        """`document` where it is an object, else an empty one."""
        return self.document if isinstance(self.document, dict) else {}

    @cached_property
    def items(self) -> list[Any]:
        """The items of `document` where it is an array, else none; the last one may be cut."""
        return self.document if isinstance(self.document, list) else []

    @cached_property
    def item(self) -> dict[str, Any]:
        """The first item of the array that the file is, where that is an object; else an empty one."""
        return self.items[0] if self.items and isinstance(self.items[0], dict) else {}
