"""A file of lines as blocks of whole lines, so that several processes can read it (row_pool.py).

Lines end at the byte \\n and nowhere else, so a block can be cut without knowing what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.landing.opening import BLOCK, CUT, open_log

BLOCK_BYTES = 2 << 20
"""Bytes of a block: enough that screening many records at once pays, few enough that all processes end at the same time."""

LONGEST = 16 << 20
"""Bytes of a line that is still sent to another process; a longer one is read where the file is."""


@dataclass(frozen=True)
class Block:
    """Whole lines of a file, one after the other; the file's last may lack its newline."""

    start: int
    """Offset of its first byte in the (unpacked) file, which is on line `line`."""
    line: int
    raw: bytes
    cut: bool = False
    """The file is packed and its end is missing: it ends with this block, whose lines are whole."""
    long: bool = False
    """Here stands a line longer than LONGEST, and `raw` is empty: the file is to be read on in another way."""


def blocks(path: Path, start: int, line: int) -> Iterator[Block]:
    """The file from byte `start` on, which is on line `line`. Raises OSError where it cannot be read."""
    with open_log(path) as stream:
        stream.seek(start)
        parts: list[bytes] = []
        num_bytes = 0
        while True:
            try:
                read = stream.read1(BLOCK)
            except CUT:
                whole = b"".join(parts)
                yield Block(start, line, whole[: whole.rfind(b"\n") + 1], cut=True)
                return
            parts.append(read)
            num_bytes += len(read)
            if read and num_bytes < BLOCK_BYTES:
                continue
            whole = b"".join(parts)
            end = whole.rfind(b"\n") + 1 if read else len(whole)
            if end == 0 and read:
                if num_bytes >= LONGEST:
                    yield Block(start, line, b"", long=True)
                    return
                parts = [whole]
                continue
            raw = whole[:end]
            if raw:
                yield Block(start, line, raw)
            if not read:
                return
            start, line = start + end, line + raw.count(b"\n")
            parts, num_bytes = [whole[end:]], len(whole) - end
