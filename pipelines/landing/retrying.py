"""Reads: landing/quarantine, log files. Writes: landing/records, landing/quarantine. Next: trajectories.

A piece in quarantine is read again by today's parser: out of its file where the same bytes still stand there, else out of the
text that was kept, where that is whole. What it turns out to be lands under the ids that landing would give it, so that the
file may come again; then its row is removed. A kill between the two is healed by the next retry, which finds the record
there and removes the row: until then the piece stands in both places.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from pipelines.errors import UnknownFormatError, UnknownReferenceError
from pipelines.ids import Identity
from pipelines.landing import registry
from pipelines.landing.chunks import Chunk, chunks
from pipelines.landing.format import LogFormat
from pipelines.landing.land import RAW_LIMIT, Landing, land
from pipelines.landing.offsets import Position
from pipelines.landing.opening import open_log
from pipelines.schemas import QUARANTINE, RECORDS
from pipelines.steps import reached
from pipelines.workspace import Workspace

MAX_EQUALS = 10_000
"""Equal bad pieces of one file among which a row is looked for."""


@dataclass
class Retried:
    """What a retry did."""

    records: int = 0
    """Records that are new in the lake, the skipped included."""
    left: list[str] = field(default_factory=list)
    """Rows that are in quarantine no more."""
    stayed: Counter[str] = field(default_factory=Counter)
    """Why the others stay."""


def retry(workspace: Workspace, record_ids: Sequence[str] | None = None) -> Retried:
    """Read pieces of quarantine again; None: all. UnknownReferenceError where one is not there."""
    wanted = None if record_ids is None else ds.field("record_id").isin(list(record_ids))
    columns = [name for name in QUARANTINE.schema.names if name != "raw"]
    rows = workspace.lake.read(QUARANTINE.name, columns, wanted).to_pylist()
    missing = set(record_ids or ()) - {row["record_id"] for row in rows}
    if missing:
        raise UnknownReferenceError(f"no {min(missing)} is in quarantine; `nightshift quarantine` lists what is")
    retried = Retried()
    of_file: dict[tuple[str, str | None, str], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row["source"], row["byte_start"], row["record_id"])):
        of_file.setdefault((row["source"], row["format"], row["day"]), []).append(row)
    for (source, name, day), pieces in of_file.items():
        if name is None:
            gone = _whole_file(workspace, workspace.path(source), day, retried)
            left = [piece["record_id"] for piece in pieces] if gone else []
        else:
            left = _Again(workspace, source, name, day, retried).read(pieces)
        if left:
            reached("quarantine:landed")
            workspace.lake.replace_rows(QUARANTINE.name, "record_id", left, lambda _: QUARANTINE.schema.empty_table())
            retried.left += left
    return retried


def _whole_file(workspace: Workspace, path: Path, day: str, retried: Retried) -> bool:
    """Land a file that no format recognised; False where none does now."""
    try:
        known = registry.detect(path)
    except OSError:
        retried.stayed["the file is gone"] += 1
        return False
    if known is None:
        retried.stayed["no format recognises the file"] += 1
        return False
    landed = land(workspace, [path], day=day)
    retried.records += landed.records + landed.skipped
    return True


class _Again:
    """Pieces of one file that were quarantined on one day."""

    def __init__(self, workspace: Workspace, source: str, format: str, day: str, retried: Retried) -> None:
        self.workspace, self.source, self.day, self.retried = workspace, source, day, retried
        self.identity = workspace.identity
        try:
            self.format: LogFormat | None = registry.by_name(format)
        except UnknownFormatError:
            self.format = None

    def read(self, pieces: Sequence[dict[str, Any]]) -> list[str]:
        """Land what can be read; the ids of the rows that are done."""
        if self.format is None:
            self.retried.stayed["its format is not known any more"] += len(pieces)
            return []
        path = self.workspace.path(self.source)
        standing, rest = [], []
        for piece in pieces:
            (standing if self._stands(path, piece) else rest).append(piece)
        done = self._from_file(self.format, path, standing) if standing else []
        for piece in rest:  # in the order of the file
            done += self._from_kept(self.format, piece, done)
        return done

    def _stands(self, path: Path, piece: dict[str, Any]) -> bool:
        """The bytes at its place are those that it was made of."""
        try:
            with open_log(path) as stream:
                stream.seek(piece["byte_start"])
                raw = stream.read(piece["byte_end"] - piece["byte_start"])
        except (OSError, EOFError, ValueError):
            return False
        known = hashlib.sha256(raw).digest() if piece["reason"] == "too_long" else raw
        return _number(self.identity, known, piece["record_id"]) is not None

    def _from_file(self, format: LogFormat, path: Path, pieces: Sequence[dict[str, Any]]) -> list[str]:
        still_bad: set[str] = set()
        met: set[str] = set()
        end = 0

        def within() -> Iterator[Chunk]:
            # from the start, since ids count equal pieces; only what lies where these pieces lay is landed
            nonlocal end
            for chunk in chunks(self.identity, format, Position(path)):
                kept, end = Chunk(end=chunk.end), chunk.end
                for name, identified in chunk.records.items():
                    if hit := _overlapping(pieces, identified.record.byte_start, identified.record.byte_end):
                        met.update(hit)
                        kept.records[name] = identified
                for name, bad in chunk.bad.items():
                    if hit := _overlapping(pieces, bad.byte_start, bad.byte_end):
                        met.update(hit)
                        still_bad.add(name)
                        kept.bad[name] = bad
                if kept.num_pieces:
                    yield kept

        self._land(format, within())
        # what is read over without a word repeats a record of the same file
        read = {piece["record_id"] for piece in pieces if piece["record_id"] in met or piece["byte_end"] <= end}
        done = [piece["record_id"] for piece in pieces if piece["record_id"] in read - still_bad]
        if len(done) < len(pieces):
            self.retried.stayed["it still cannot be read"] += len(pieces) - len(done)
        return done

    def _from_kept(self, format: LogFormat, piece: dict[str, Any], done: Sequence[str]) -> list[str]:
        """Out of the text in quarantine: whole, and not redacted, since its ids are those of the bytes before."""
        row = self.workspace.lake.read(QUARANTINE.name, ["raw"], ds.field("record_id") == piece["record_id"]).to_pylist()[0]
        raw = row["raw"].encode()
        if len(row["raw"]) >= RAW_LIMIT:
            self.retried.stayed["its file is gone or changed, and the kept text is cut"] += 1
            return []
        number = _number(self.identity, raw, piece["record_id"])
        if number is None:
            self.retried.stayed["its file is gone or changed, and the kept text is redacted"] += 1
            return []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / (Path(self.source).name or "log")
            for text in (raw + b"\n", b"[" + raw + b"]"):
                path.write_bytes(text)
                found = list(chunks(self.identity, format, Position(path)))
                records = {name: one for chunk in found for name, one in chunk.records.items()}
                if records and not any(chunk.bad or chunk.unfinished for chunk in found):
                    break
            else:
                self.retried.stayed["it still cannot be read"] += 1
                return []
        # what stood in a file of its own for a moment stands where it always stood
        place = {key: piece[key] for key in ("line", "byte_start", "byte_end")}
        kept = Chunk()
        for name, one in records.items():
            if one.record.vendor_id is None:
                found_name = self._counted(piece, one.content_id, raw, number, done)
                if found_name is None:
                    self.retried.stayed["its file is gone or changed, and without it nobody can tell it from an equal one"] += 1
                    return []
                name = found_name
            kept.records[name] = dataclasses.replace(one, record=dataclasses.replace(one.record, **place))
        self._land(format, [kept])
        return [piece["record_id"]]

    def _counted(self, piece: dict[str, Any], content_id: str, raw: bytes, number: int, done: Sequence[str]) -> str | None:
        """Its id by its number among the equal pieces of its file: those before it that are records, and those that are in
        quarantine. None where another record has that id: then some of them came from another file, and cannot be counted.
        """
        lake, place = self.workspace.lake, (piece["source"], piece["byte_start"])
        equal = lake.read(RECORDS.name, ["record_id", "source", "byte_start"], ds.field("content_id") == content_id).to_pylist()
        before = sum(1 for row in equal if row["source"] == place[0] and row["byte_start"] < place[1])
        bad_id = self.identity.of("content", "bad", raw)
        waiting = {self.identity.of("record", "bad", bad_id, str(other)) for other in range(1, number)} - set(done)
        if waiting:
            before += lake.read(QUARANTINE.name, ["record_id"], ds.field("record_id").isin(sorted(waiting))).num_rows
        record_id = self.identity.of("record", "content", content_id, str(before + 1))
        taken = any(row["record_id"] == record_id and (row["source"], row["byte_start"]) != place for row in equal)
        return None if taken else record_id

    def _land(self, format: LogFormat, found: Any) -> None:
        landing = Landing(self.workspace, self.day, True)
        landing.again(found, self.source, format)
        self.retried.records += landing.records + landing.skipped


def _overlapping(pieces: Sequence[dict[str, Any]], start: int, end: int) -> list[str]:
    """Those that lie where these bytes lie; `pieces` stand in the order of their file and do not overlap each other."""
    first = bisect.bisect_right(pieces, start, key=lambda piece: piece["byte_end"])
    return [piece["record_id"] for piece in itertools.takewhile(lambda piece: piece["byte_start"] < end, pieces[first:])]


def _number(identity: Identity, raw: bytes, record_id: str) -> int | None:
    """Which of the equal bad pieces of a file it is, from 1; None where these are not its bytes."""
    content_id = identity.of("content", "bad", raw)
    for number in range(1, MAX_EQUALS + 1):
        if identity.of("record", "bad", content_id, str(number)) == record_id:
            return number
    return None
