"""One line of a log: what became of the records that begin there, or of the record that the line lies inside.

The lake knows where a record begins and which bytes it takes, not how many lines: for a line inside a record the file itself is
read from the record before it on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from pipelines.errors import UnknownReferenceError
from pipelines.workspace import Workspace

BLOCK_BYTES = 1 << 20
_NO_LINES = (b"PK\x03\x04", b"PAR1")
"""How files begin whose records are numbered and not on lines: archives, Parquet."""


def pieces_at(workspace: Workspace, file: str, line: int) -> list[dict[str, Any]]:
    """What begins at a line of a file, else what the line lies inside: {record_id, source, line, became, reason, detail,
    trajectory_id}, one for each trajectory that a record is in.

    `file` as stored, or any path to it; lines count from 1. `became` is `trajectory`, `duplicate` (`trajectory_id` stands for
    it, where anything does), `skipped`, `quarantined`, or `waiting` (landed, and not built yet); `reason` is the
    enumerated word of the last four. UnknownReferenceError where nothing that landed is there.
    """
    names = {file, workspace.shown(Path(file)), workspace.shown(workspace.path(file))}
    files = pa.table({"source": pa.array(sorted(names), pa.string())})
    place: dict[str, int | None] = {"line": line, "byte_start": None, "byte_end": None}
    found = workspace.queries.run("lineage/records_at", place, tables={"files": files}).to_pylist()
    if found:
        return found
    before = workspace.queries.run("lineage/piece_before", {"line": line}, tables={"files": files}).to_pylist()
    if not before:
        raise UnknownReferenceError(
            f"nothing that landed from {file} begins at line {line} or before; name the file that a record came from first (the "
            "same record in a later file is not stored again)"
        )
    for piece in before:
        span = _span(workspace.path(piece["source"]), line, piece)
        if span is not None:
            place = {"line": line, "byte_start": span[0], "byte_end": span[1]}
            found += workspace.queries.run("lineage/records_at", place, tables={"files": files}).to_pylist()
    if not found:
        raise UnknownReferenceError(
            f"no record that landed holds line {line} of {file}; the record before it begins at line {before[0]['line']} (the "
            "same record in a later file is not stored again)"
        )
    return found


def _span(path: Path, line: int, before: dict[str, Any]) -> tuple[int, int] | None:
    """First byte of a line and the byte behind it, counted from a piece that begins at or before it; None where no piece
    reaches so far, or the file is not what it was."""
    if before["byte_end"] is None:
        return None
    try:
        with path.open("rb") as stream:
            if stream.read(4).startswith(_NO_LINES):
                return None
            end = before["byte_end"]
            begin = _behind(stream, before["byte_start"], line - before["line"], end)
            if begin is None or begin >= end:
                return None
            return begin, _behind(stream, begin, 1, end) or end
    except OSError as problem:
        raise UnknownReferenceError(
            f"line {line} of {path} begins no record, and the file cannot be read ({problem.strerror}) to find the one that it lies "
            f"inside; the record before it begins at line {before['line']}"
        ) from problem


def _behind(stream: BinaryIO, begin: int, num_ends: int, end: int) -> int | None:
    """The byte behind the so-many-th line end from `begin` on; None where there are fewer before `end`."""
    stream.seek(begin)
    while num_ends:
        block = stream.read(max(0, min(BLOCK_BYTES, end - begin)))
        if not block:
            return None
        held = block.count(b"\n")
        if held < num_ends:
            num_ends, begin = num_ends - held, begin + len(block)
            continue
        at = -1
        for _ in range(num_ends):
            at = block.index(b"\n", at + 1)
        return begin + at + 1
    return begin
