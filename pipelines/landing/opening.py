"""The bytes of a log file, unpacked where it is packed. Every format reads files through here.

Offsets count unpacked bytes, so that a log keeps its records when it is rotated and packed with gzip.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import Any

GZIP = b"\x1f\x8b"
BLOCK = 1 << 20
"""Bytes that are read at once."""

CUT = (EOFError, zlib.error)
"""What reading a packed file raises where its end is missing, as while it is being copied."""


class _Unpacked(io.RawIOBase):
    """A packed file, unpacked as far as it goes before anything is said about its end."""

    def __init__(self, path: Path) -> None:
        self._file = gzip.GzipFile(path, "rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._file.read1(len(buffer))
        buffer[: len(read)] = read
        return len(read)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def open_log(path: Path) -> io.BufferedReader:
    """The file for reading, at its start. Raises OSError where it cannot be read (gzip.BadGzipFile is one)."""
    file = io.FileIO(path)
    # a small file gets a small buffer: to make a large one costs more than to read the file
    stream = io.BufferedReader(file, min(BLOCK, max(os.fstat(file.fileno()).st_size + 1, 1 << 13)))
    try:
        packed = stream.read(2) == GZIP
        stream.seek(0)
    except BaseException:
        stream.close()
        raise
    if not packed:
        return stream  # type: ignore[return-value]  # generic in its stubs only
    stream.close()
    return io.BufferedReader(_Unpacked(path), BLOCK)


def read_block(stream: io.BufferedReader, size: int) -> bytes:
    """Up to `size` bytes, fewer at the end only; a packed file whose end is missing ends where it is cut."""
    blocks: list[bytes] = []
    try:
        while size > 0:
            block = stream.read1(min(BLOCK, size))  # `read` would throw away what it has when it meets the cut
            if not block:
                break
            blocks.append(block)
            size -= len(block)
    except CUT:
        pass
    return b"".join(blocks)


def read_log(path: Path, limit: int = -1) -> bytes:
    """Its bytes, at most `limit`; what can be unpacked of a packed file whose end is missing."""
    with open_log(path) as stream:
        return read_block(stream, limit if limit >= 0 else 1 << 62)
