"""Delta's own log of a table, read and made durable: what its library does not hand out.

- `transactions`: the sequences of all app ids at once. The library answers for one app id by going through the whole log,
  which for a tree of 100,000 files would be 100,000 readings of it.
- `make_durable`: Delta syncs nothing on a local disk, so a power cut may take rows whose commit was acknowledged. After
  this, the data files of a version, its commit file and the folders that name them are on the disk. The order in between
  is not ours: a cut in the middle may leave a commit without its data, which `nightshift doctor` finds; taking that newest
  commit away takes its offsets with it, and the next landing reads the lines again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

LOG = "_delta_log"

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.[^/]*)?\.parquet")


def transactions(files: fs.FileSystem, version: int, known: tuple[int, dict[str, int]] | None = None) -> dict[str, int]:
    """App id -> last committed sequence in a version; `files` is rooted at the table.

    `known`: the same of an earlier version, to go on from. Raises OSError or pa.ArrowInvalid where the log cannot be read.
    """
    if known is not None and known[0] <= version:
        try:
            return _advanced(files, dict(known[1]), known[0] + 1, version)
        except OSError:  # commits were cleaned up behind a checkpoint
            pass
    listed = files.get_file_info(fs.FileSelector(LOG))
    parts: dict[int, list[str]] = {}
    for info in listed:
        if found := _CHECKPOINT.fullmatch(info.base_name):
            parts.setdefault(int(found[1]), []).append(info.path)
    for checkpoint in sorted(parts, reverse=True):
        if checkpoint > version:
            continue
        try:
            held = dict(pair for path in parts[checkpoint] for pair in _checkpointed(files, path))
        except (OSError, pa.ArrowInvalid, KeyError):  # torn: an older one, or the commits alone
            continue
        return _advanced(files, held, checkpoint + 1, version)
    return _advanced(files, {}, 0, version)


def make_durable(folder: Path, version: int) -> None:
    """Bring a local table's version, and the one before it, to the disk."""
    log = folder / LOG
    touched = {log, folder, folder.parent, folder.parent.parent}
    for number in (version, version - 1):  # the one before may have made the table or its columns
        commit = log / f"{number:020}.json"
        if not commit.exists():
            continue
        for path in added(folder, number) if number == version else ():
            _sync(folder / path)
            touched.add((folder / path).parent)
        _sync(commit)
    for name in (f"{version:020}.checkpoint.parquet", "_last_checkpoint"):
        _sync(log / name)
    for path in touched:
        _sync(path)


def added(folder: Path, version: int) -> list[str]:
    """Data files that a version of a local table added, below its folder; none where its commit is not there any more."""
    try:
        lines = (folder / LOG / f"{version:020}.json").read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [unquote(orjson.loads(line)["add"]["path"]) for line in lines if line.startswith(b'{"add"')]


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _advanced(files: fs.FileSystem, held: dict[str, int], first: int, last: int) -> dict[str, int]:
    for version in range(first, last + 1):
        with files.open_input_stream(f"{LOG}/{version:020}.json") as stream:
            for line in stream.read().splitlines():
                if line.startswith(b'{"txn"'):
                    transaction = orjson.loads(line)["txn"]
                    held[transaction["appId"]] = transaction["version"]
    return held


def _checkpointed(files: fs.FileSystem, path: str) -> Iterator[tuple[str, int]]:
    with files.open_input_file(path) as stream:
        table = pq.read_table(stream, columns=["txn"])
    if "txn" not in table.column_names:
        return
    for row in table.column("txn").drop_null().to_pylist():
        if row["appId"] is not None:
            yield row["appId"], row["version"]
