"""The bytes of a log file, unpacked where it is packed. Every format reads files through here.

Offsets count unpacked bytes, so that a log keeps its place when it is rotated and packed with gzip.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO

GZIP = b"\x1f\x8b"


def open_log(path: Path) -> IO[bytes]:
    """The file for reading, at its start. Raises OSError where it cannot be read (gzip.BadGzipFile is one)."""
    stream = path.open("rb")
    try:
        packed = stream.read(2) == GZIP
        stream.seek(0)
    except BaseException:
        stream.close()
        raise
    if not packed:
        return stream
    stream.close()
    return gzip.open(path, "rb")  # type: ignore[return-value]  # GzipFile reads like any binary file


def read_log(path: Path, limit: int = -1) -> bytes:
    """Its bytes, at most `limit`; what can be unpacked of a packed file whose end is missing."""
    with open_log(path) as stream:
        content = b""
        try:
            while limit < 0 or len(content) < limit:
                block = stream.read(1 << 20 if limit < 0 else min(1 << 20, limit - len(content)))
                if not block:
                    break
                content += block
        except (EOFError, zlib.error):
            pass
        return content
