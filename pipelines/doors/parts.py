"""Which data files of a Delta table a question is about, by what the table's log says of each: its partition, and the least and
greatest value of the columns that have statistics.

Works on opened versions (`lake.Handle`) and imports no engine: the log is read by the handle.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

if TYPE_CHECKING:
    from pipelines.doors.lake import Handle


def files_with(handle: Handle, column: str, values: Collection[str]) -> list[str]:
    """Files that may hold a row whose `column` has one of the values, or none; of the others the log says that they do not."""
    asked = sorted(values)
    uris = {_name(uri): uri for uri in handle.file_uris()}
    return [uris[_name(row["path"])] for row in _told(handle, column) if _may_hold(row, column, asked)]


def files_since(before: Handle, after: Handle) -> list[str]:
    """Locations of the files of `after` that `before` did not have."""
    uris = {_name(uri): uri for uri in after.file_uris()}
    return [uris[PurePosixPath(path).name] for path in files_added(before, after)]


def partitions(handle: Handle, column: str) -> set[str]:
    """Partitions that hold a file."""
    return {row[f"partition.{column}"] for row in _told(handle, column)}


def partitions_that_differ(before: Handle, after: Handle, column: str) -> set[str]:
    """Partitions of which a file was added or taken out between two versions."""
    old, new = ({row["path"]: row[f"partition.{column}"] for row in _told(handle, column)} for handle in (before, after))
    return {(old | new)[path] for path in old.keys() ^ new.keys()}


def files_added(before: Handle, after: Handle) -> list[str]:
    """Paths below the table's folder, sorted."""
    old, new = ({row["path"] for row in _told(handle, "")} for handle in (before, after))
    return sorted(unquote(path) for path in new - old)


def _told(handle: Handle, column: str) -> list[dict[str, Any]]:
    actions = pa.table(handle.get_add_actions(flatten=True))
    return actions.select(
        [name for name in actions.column_names if name == "path" or name.rpartition(".")[2] == column]
    ).to_pylist()


def _may_hold(row: dict[str, Any], column: str, asked: list[str]) -> bool:
    partition = f"partition.{column}"
    if partition in row:
        low = high = row[partition]
    else:
        low, high = row.get(f"min.{column}"), row.get(f"max.{column}")
    if low is None or high is None or row.get(f"null_count.{column}"):
        return True
    place = bisect.bisect_left(asked, low)
    return place < len(asked) and asked[place] <= high


def _name(path: str) -> str:
    """A data file's own name, which is unique in its table."""
    return PurePosixPath(unquote(path)).name
