"""How far a file is landed: one number per file, kept in the Delta transaction that added its records.

The number is the acknowledged byte offset and a checksum of all bytes before it, so that a file that only grew is read on
from there, and one that was rotated or rewritten is noticed and read anew. Reading anew does no harm: record ids decide
what is new. Nothing else remembers offsets: where a lost commit takes rows away it takes their offset away too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

from pipelines.ids import Identity

_CHECK_BITS = 20
_CHECK_MASK = (1 << _CHECK_BITS) - 1
_BLOCK = 1 << 20
_LONGEST_HEAD = 1 << 16


def app_id(identity: Identity, shown: str, path: Path) -> str:
    """Name of a file's transactions: its path and its first line, so that a rotated log starts a count of its own."""
    with path.open("rb") as stream:
        head = stream.readline(_LONGEST_HEAD).rstrip(b"\r\n")
    return f"landing/{identity.of('file', shown, head)}"


@dataclass
class Position:
    """A place in a file: the offset, the line it is on, the checksum of what is before it."""

    path: Path
    offset: int = 0
    line: int = 1
    checksum: int = 0

    @property
    def sequence(self) -> int:
        """Offset and checksum as one number, which grows with the offset; fits files up to 8 TiB."""
        return self.offset << _CHECK_BITS | self.checksum & _CHECK_MASK

    def advance(self, offset: int) -> None:
        """Go on to a later offset."""
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            while self.offset < offset:
                block = stream.read(min(_BLOCK, offset - self.offset))
                if not block:  # truncated while it was read: the checksum will not fit, and it is read anew
                    return
                self.checksum = zlib.crc32(block, self.checksum)
                self.line += block.count(b"\n")
                self.offset += len(block)


def resume(path: Path, sequence: int) -> Position:
    """Where to read on after a committed sequence: its offset where the bytes before it are the same, else the start."""
    position = Position(path)
    offset = sequence >> _CHECK_BITS
    if 0 < offset <= path.stat().st_size:
        position.advance(offset)
        if position.sequence == sequence:
            return position
    return Position(path)
