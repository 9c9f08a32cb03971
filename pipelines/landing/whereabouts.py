"""Reads: landing/quarantine, log files. Writes: landing/quarantine. Next: the reader of `nightshift quarantine`.

A row of quarantine is named by its bytes, so a bad piece is one row however often its file is renamed, copied or rotated.
Where it stands is kept up to date: a row follows its bytes to the file that holds them now, and the row of a file that no
format recognised goes when that file is recognised or holds something else.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.doors.lake import Snapshot
from pipelines.landing.format import BadRecord
from pipelines.landing.opening import open_log
from pipelines.schemas import QUARANTINE
from pipelines.workspace import Workspace


@dataclass(frozen=True)
class Met:
    """A bad piece where a landing met it."""

    piece: BadRecord
    source: str
    """Name of its file in the lake."""


class Whereabouts:
    """What one landing learns about where the pieces of quarantine stand."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._unknown: dict[str, str] | None = None

    def settle(self, again: Mapping[str, Met], files: Sequence[str], unknown: Mapping[str, str]) -> None:
        """Bring quarantine up to date, in one commit where there is something to bring.

        `again`: pieces that are rows already, by record_id. `files`: files that a format recognises. `unknown`: record_id of
        each file that none does, as it is now.
        """
        by_file = self._unknown_rows()
        gone = {by_file[file] for file in files if file in by_file}
        gone |= {by_file[file] for file, record_id in unknown.items() if by_file.get(file, record_id) != record_id}
        moved = self._moved(again, gone)
        gone -= moved.keys()
        if not gone and not moved:
            return

        def compute(snapshot: Snapshot) -> pa.Table:
            rows = snapshot.read(filter=ds.field("record_id").isin(pa.array(sorted(moved), pa.string()))).to_pylist()
            return pa.Table.from_pylist([{**row, **moved[row["record_id"]]} for row in rows], schema=QUARANTINE.schema)

        self.workspace.lake.replace_rows(QUARANTINE.name, "record_id", sorted(gone | moved.keys()), compute)
        self._unknown = None

    def met(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Met]:
        """Bad pieces of which rows were made just now, by record_id; without those whose file has changed since."""
        found: dict[str, Met] = {}
        for row, raw in self._bytes_of(rows):
            if raw is not None:
                places = {name: row[name] for name in ("line", "byte_start", "byte_end", "reason", "detail")}
                piece = BadRecord(**places, raw=raw[:1], digest=hashlib.sha256(raw).digest())
                found[row["record_id"]] = Met(piece, row["source"])
        return found

    def landed(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows that this landing added."""
        if self._unknown is not None:
            self._unknown.update({row["source"]: row["record_id"] for row in rows if row["reason"] == "unknown_format"})

    def _unknown_rows(self) -> dict[str, str]:
        """record_id by file, of the files that no format recognised."""
        if self._unknown is None:
            rows = self.workspace.lake.read(
                QUARANTINE.name, ["source", "record_id"], ds.field("reason") == "unknown_format"
            ).to_pylist()
            self._unknown = {row["source"]: row["record_id"] for row in rows}
        return self._unknown

    def _moved(self, again: Mapping[str, Met], gone: set[str]) -> dict[str, dict[str, Any]]:
        if not again:
            return {}
        columns = ["record_id", "source", "byte_start", "byte_end"]
        rows = self.workspace.lake.read(QUARANTINE.name, columns, ds.field("record_id").isin(sorted(again))).to_pylist()
        elsewhere = [row for row in rows if row["source"] != again[row["record_id"]].source]
        asked = [row for row in elsewhere if row["record_id"] not in gone]
        standing = {
            row["record_id"] for row, raw in self._bytes_of(asked) if self._stands(row, raw, again[row["record_id"]].piece)
        }
        return {row["record_id"]: _place(again[row["record_id"]]) for row in elsewhere if row["record_id"] not in standing}

    def _bytes_of(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], bytes | None]]:
        """The bytes at the place that each row names, None where it cannot be read; each file is opened and gone through once,
        since a compressed one cannot be entered in the middle."""
        in_order = sorted(rows, key=lambda row: (row["source"], row["byte_start"]))
        for source, of_file in itertools.groupby(in_order, key=lambda row: row["source"]):
            named = list(of_file)
            done = 0
            try:
                with open_log(self.workspace.path(source)) as stream:
                    for row in named:
                        stream.seek(row["byte_start"])
                        raw = stream.read(row["byte_end"] - row["byte_start"])
                        done += 1
                        yield row, raw
            except (OSError, EOFError, ValueError):
                for row in named[done:]:
                    yield row, None

    def _stands(self, row: Mapping[str, Any], raw: bytes | None, piece: BadRecord) -> bool:
        """Its bytes are still where its row says."""
        if not piece.raw:  # a file that is no text, of which nothing is kept
            try:
                return self.workspace.path(row["source"]).stat().st_size == piece.byte_end
            except OSError:
                return False
        if raw is None:
            return False
        return raw[: len(piece.raw)] == piece.raw if piece.digest is None else hashlib.sha256(raw).digest() == piece.digest


def _place(met: Met) -> dict[str, Any]:
    piece = met.piece
    return {"source": met.source, "line": piece.line, "byte_start": piece.byte_start, "byte_end": piece.byte_end}
