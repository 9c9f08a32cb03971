"""The archives (.eval) and the loose JSON that Inspect AI writes: members read one by one, NaN as null."""

from __future__ import annotations

import json
import zipfile
import zlib
from typing import IO, Any

import pyarrow as pa

from pipelines.landing.decoding import BadPieceError, decode
from pipelines.landing.shapes import mapping

ZIP = b"PK\x03\x04"
"""How an archive begins."""

ZSTD = 93
"""Compression of newer archives, which Python's zipfile does not know."""


def decoded(raw: bytes) -> tuple[Any, bytes]:
    """As `decode`, but a number that is none (Python writes NaN where nothing was scored) is null."""
    try:
        return decode(raw)
    except BadPieceError as problem:
        if problem.reason != "bad_json" or not any(sign in raw for sign in (b"NaN", b"Infinity")):
            raise
        try:
            return json.loads(raw.decode("utf-8"), parse_constant=lambda _: None), raw
        except (ValueError, RecursionError):
            raise problem from None


def evaluation_of(archive: zipfile.ZipFile, stream: IO[bytes]) -> dict[str, Any]:
    """What its header says of the evaluation; of one that is still running, its journal's start. Empty where both are missing."""
    for name in ("header.json", "_journal/start.json"):
        try:
            value, _ = decoded(member(archive, archive.getinfo(name), stream))
        except (KeyError, BadPieceError):
            continue
        return mapping(mapping(value).get("eval"))
    return {}


def place(entry: zipfile.ZipInfo, stream: IO[bytes]) -> tuple[int, int]:
    """Where a member's packed bytes begin and end."""
    stream.seek(entry.header_offset)
    header = stream.read(30)
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    begin = entry.header_offset + 30 + lengths
    return begin, begin + entry.compress_size


def member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, stream: IO[bytes]) -> bytes:
    """A member's bytes, or BadPieceError."""
    try:
        if entry.compress_type != ZSTD:
            return archive.read(entry)
        begin, end = place(entry, stream)
        stream.seek(begin)
        return pa.decompress(stream.read(end - begin), entry.file_size, codec="zstd", asbytes=True)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, pa.ArrowException) as problem:
        raise BadPieceError("wrong_shape", f"{entry.filename} cannot be unpacked: {problem}"[:200]) from None
