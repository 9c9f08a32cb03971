"""How far a file is landed: one number per file, kept in the Delta transaction that added its records.

The number is the acknowledged byte offset and a checksum of all bytes before it, so that a file that only grew is read on
from there, and one that was rotated or rewritten is noticed and read anew. Reading anew does no harm: record ids decide
what is new. Nothing else remembers offsets: where a lost commit takes rows away it takes their offset away too.

A file is known by its path alone. So a log under another name (renamed, copied, packed after its rotation) is read in full
once, and finds its records held; and under an old name a new log (rotation, a reused inode) is told by its bytes.
Transactions are forgotten RETENTION_DAYS after they were last written (Delta drops them at a checkpoint): by then the record
ids of a finished file are long in the table, and a file that is read again in full adds nothing.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.ids import Identity
from pipelines.landing.opening import BLOCK, CUT, open_log

_CHECK_BITS = 20
_CHECK_MASK = (1 << _CHECK_BITS) - 1


def app_id(identity: Identity, shown: str) -> str:
    """Name of a file's transactions."""
    return f"landing/{identity.of('file', shown)}"


@dataclass
class Position:
    """A place in a file: the offset, the line it is on, the checksum of what is before it."""

    path: Path
    offset: int = 0
    line: int = 1
    checksum: int = 0
    _stream: io.BufferedReader | None = field(default=None, repr=False, compare=False)

    @property
    def sequence(self) -> int:
        """Offset and checksum as one number; fits files up to 8 TiB."""
        return self.offset << _CHECK_BITS | self.checksum & _CHECK_MASK

    def advance(self, offset: int, *, count_lines: bool = False) -> None:
        """Go on to a later offset, the line only where asked; a file that was truncated meanwhile ends before, and is read anew next time."""
        if self._stream is None:
            self._stream = open_log(self.path)
            self._stream.seek(self.offset)
        try:
            while self.offset < offset:
                block = self._stream.read1(min(BLOCK, offset - self.offset))
                if not block:
                    return
                self.checksum = zlib.crc32(block, self.checksum)
                if count_lines:
                    self.line += block.count(b"\n")
                self.offset += len(block)
        except CUT:
            return

    def at_start(self) -> Position:
        """The start of the same file."""
        self.close()
        return Position(self.path)

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def offset_of(sequence: int) -> int:
    """The acknowledged offset of a committed sequence."""
    return sequence >> _CHECK_BITS


def resume(path: Path, sequence: int) -> Position:
    """Where to read on after a committed sequence: its offset where the bytes before it are the same, else the start."""
    position = Position(path)
    offset = offset_of(sequence)
    if offset > 0:
        position.advance(offset, count_lines=True)
        if position.offset == offset and position.sequence == sequence:
            return position
    return position.at_start()
