"""The bytes of a log file, unpacked where it is packed. Every format reads files through here.

Offsets count unpacked bytes, so that a log keeps its records when it is rotated and packed with gzip.
"""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import IO

GZIP = b"\x1f\x8b"
BLOCK = 1 << 20
"""Bytes that are read at once."""

CUT = (EOFError, zlib.error)
"""What reading a packed file raises where its end is missing, as while it is being copied."""


def open_log(path: Path) -> IO[bytes]:
    """The file for reading, at its start. Raises OSError where it cannot be read (gzip.BadGzipFile is one)."""
    stream = path.open("rb", buffering=BLOCK)
    try:
        packed = stream.peek(2)[:2] == GZIP
    except BaseException:
        stream.close()
        raise
    if not packed:
        return stream
    stream.close()
    return io.BufferedReader(gzip.open(path, "rb"), BLOCK)  # type: ignore[arg-type]  # GzipFile reads like any raw file


def read_block(stream: IO[bytes], size: int) -> bytes:
    """Up to `size` bytes, fewer at the end only; a packed file whose end is missing ends where it is cut."""
    blocks: list[bytes] = []
    try:
        while size > 0:
            block = stream.read(min(BLOCK, size))
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
