"""The data files of a local table as files: whether each is what was written, and what it held.

Parquet as it is written here has no checksums, and of two flipped bits one changes rows without any reader noticing. So a
checksum of every data file is noted once it is committed, in `.sums/<table>` beside the table. A file that has none (its
writer was killed right after its commit, or an older nightshift wrote it) is decoded in full instead.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.doors.delta_log import added

SUMS = ".sums"

_BLOCK = 1 << 20


def note(folder: Path, version: int) -> None:
    """Note the checksums of the data files that a version of a table added; one write, so that writers do not mix."""
    lines = [
        orjson.dumps({"path": path, "crc32": _checksum(folder / path)}) + b"\n"
        for path in added(folder, version)
        if (folder / path).exists()  # replaced and vacuumed by now
    ]
    if lines:
        noted = _noted_in(folder)
        noted.parent.mkdir(exist_ok=True)
        with noted.open("ab", buffering=0) as stream:
            stream.write(b"".join(lines))


def sums(folder: Path) -> dict[str, int]:
    """Checksum by path below the table's folder, of every data file that has one."""
    found: dict[str, int] = {}
    try:
        lines = _noted_in(folder).read_bytes().splitlines()
    except FileNotFoundError:
        return found
    for line in lines:
        try:
            entry = orjson.loads(line)
            found[entry["path"]] = int(entry["crc32"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):  # cut by a power failure
            continue
    return found


def is_cut(path: Path, size: int, num_rows: int | None) -> bool:
    """Not as long as the log says, or without a footer that can be read and names as many rows."""
    try:
        if path.stat().st_size != size:
            return True
        return num_rows is not None and pq.read_metadata(path).num_rows != num_rows
    except (OSError, pa.ArrowException):
        return True


def is_flipped(path: Path, checksum: int | None) -> bool:
    """Other bytes than were written, by their checksum; where there is none, bytes that cannot be decoded."""
    if checksum is not None:
        return _checksum(path) != checksum
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                batch.validate(full=True)
    except (OSError, pa.ArrowException, ValueError):
        return True
    return False


def rows_by_source(paths: Iterable[Path]) -> Counter[str] | None:
    """Records by the log file that they came from, each record once; None where that cannot be read any more."""
    held: dict[str, str] = {}
    for path in paths:
        try:
            rows = pq.read_table(path, columns=["record_id", "source"], partitioning=None)  # type: ignore[arg-type]  # None: the folder names are no columns
            rows.validate(full=True)
        except (OSError, pa.ArrowException, ValueError, KeyError):
            return None
        held.update(zip(rows.column("record_id").to_pylist(), rows.column("source").to_pylist(), strict=True))
    return Counter(held.values())


def _noted_in(folder: Path) -> Path:
    return folder.parent / SUMS / folder.name


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while block := stream.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found
