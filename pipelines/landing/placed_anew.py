"""Reads: landing/records, log files. Writes: landing/records (bundle, day, skipped or not). Next: trajectories.

Where a record belongs was read off it by the parser that landed it. A parser that has learned to recognise a bundle, a time or
a line that is no part of an attempt would say something else today: that is what this finds out, of records that are stored,
and writes where it is told to. A record's id never moves.

The parser in force cuts the stored text as it would cut the log. Where redaction changed the text, what the parser says counts
only if it does not rest on what stands there now: every token is replaced by another one, and the answer must stay the same.
Where the stored text is not enough (it says something else than the log did, or its bundle is named by what was redacted),
the log file itself is read, if the record still stands there; and of records that are stored together with what only their
file told (a session's name), what they were stored with counts. What is left stays where it is, and is counted with the reason.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.doors.lake import Snapshot
from pipelines.landing import redacted_anew, registry
from pipelines.landing.chunks import chunks
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import LogFormat, SourceRecord
from pipelines.landing.moments import moment
from pipelines.landing.offsets import Position
from pipelines.schemas import RECORDS
from pipelines.steps import reached
from pipelines.workspace import Workspace

REDACTED = "its bundle is named by text that was redacted, and its log is gone"
REFUSED = "the parser in force takes it for no record, and its log is gone"
PLACED = pa.schema([(name, pa.string()) for name in ("record_id", "bundle_key", "day", "skip_reason")])

_COLUMNS = ("record_id", "content_id", "bundle_key", "day", "format", "skip_reason", "raw", "source")
_TOKEN = re.compile(rb"(\[redacted:[a-z0-9_]+:)[0-9a-f]{12}\]")
_WITH_SESSION = {"session", "at", "tie", "row"}
_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst|zip|eval|parquet|db|sqlite|ya?ml)$")
_MEMORY = "/dev/shm"
"""Where texts are cut, where there is such a place: a file each on a disk costs more than cutting it."""
_TOGETHER = 1_000
"""Records of one file that are cut at once."""


@dataclass
class Placing:
    """Where today's parsers would put some records."""

    rows: pa.Table
    """All that were looked at: record_id, day (as stored), num_bytes."""
    moved: list[dict[str, Any]] = field(default_factory=list)
    """Those that belong elsewhere: the columns of PLACED, and the bundle that each leaves as `left`."""
    columns: Counter[str] = field(default_factory=Counter)
    """Of these, how many have another bundle_key, day or skip_reason."""
    kept: Counter[str] = field(default_factory=Counter)
    """Why others stay where they are although nobody could say whether they belong there."""

    @property
    def placed(self) -> pa.Table:
        """As the queries of replay take it."""
        return pa.Table.from_pylist([{name: row[name] for name in PLACED.names} for row in self.moved], schema=PLACED)


def current() -> pa.Table:
    """The parser versions in force: (format, parser_version)."""
    return pa.table(
        {
            "format": [format.name for format in registry.FORMATS],
            "parser_version": pa.array([format.parser_version for format in registry.FORMATS], pa.int32()),
        }
    )


def nothing() -> Placing:
    """No record is looked at."""
    return Placing(pa.table({name: pa.array([], pa.string()) for name in ("record_id", "day", "num_bytes")}))


def look(workspace: Workspace, *, format: str | None, first: str | None, last: str | None, every: bool) -> Placing:
    """Records that another parser version placed (`every`: all), and where those in force would put them. Writes nothing."""
    parameters = {"format": format, "first": first, "last": last, "every": every}
    placing = Placing(workspace.queries.run("replay/placed_by_others", parameters, tables={"current": current()}))
    for day, ids in redacted_anew.slices_of(placing.rows, by_day=True):
        wanted = ds.field("record_id").isin(ids) & (ds.field("day") == day)
        held = workspace.lake.read(RECORDS.name, _COLUMNS, wanted)
        by_source: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for row in sorted(held.to_pylist(), key=lambda row: row["record_id"]):
            by_source[row["format"], row["source"]].append(row)
        for (name, source), rows in sorted(by_source.items()):
            _of_file(workspace, registry.by_name(name), source, rows, placing)
    return placing


def write(workspace: Workspace, placing: Placing) -> None:
    """Put the records where they belong. What was made of the bundles that change is gone until the next build.

    Killed anywhere and run again: what is placed already is not looked at any more, and what is not has lost its trajectories
    at most, which any build makes again.
    """
    lake = workspace.lake
    moved = {row["record_id"]: row for row in placing.moved}
    if moved:
        redacted_anew.begin(lake, redacted_anew.PLACING)
    for day, ids in redacted_anew.slices_of(placing.rows, by_day=True):
        moving = [moved[record_id] for record_id in ids if record_id in moved]
        bundles = sorted({key for row in moving for key in (row["left"], row["bundle_key"])})
        redacted_anew.unmake(lake, bundles)
        reached("replay:unmade")

        def compute(snapshot: Snapshot, day: str = day, ids: Sequence[str] = ids) -> pa.Table:
            held = snapshot.read(filter=ds.field("record_id").isin(ids) & (ds.field("day") == day))
            return _placed(held, moved)

        stays = all(row["day"] == day for row in moving)
        lake.replace_rows(RECORDS.name, "record_id", ids, compute, partition=day if stays else None)
        redacted_anew.unmake(lake, bundles)  # another build may have made them of the old places meanwhile
    if moved or redacted_anew.is_begun(lake, redacted_anew.PLACING):
        redacted_anew.end(lake, redacted_anew.PLACING)


def _placed(held: pa.Table, moved: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    versions = {format.name: format.parser_version for format in registry.FORMATS}
    told = held.select(["record_id", "format", "bundle_key", "day", "skip_reason", "parser_version"]).to_pylist()
    columns: dict[str, list[Any]] = {
        name: [moved.get(row["record_id"], row)[name] for row in told] for name in ("bundle_key", "day", "skip_reason")
    }
    columns["parser_version"] = [versions.get(row["format"], row["parser_version"]) for row in told]
    for name, values in columns.items():
        place = held.schema.get_field_index(name)
        held = held.set_column(place, held.schema.field(place), pa.array(values, held.schema.field(place).type))
    return held


def _of_file(workspace: Workspace, format: LogFormat, source: str, rows: list[dict[str, Any]], placing: Placing) -> None:
    """Records of one log file."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if Path(_MEMORY).is_dir() else None) as folder:
        _placed_rows(workspace, _Reading(workspace, format, source, Path(folder)), source, rows, placing)


def _placed_rows(workspace: Workspace, reading: _Reading, source: str, rows: list[dict[str, Any]], placing: Placing) -> None:
    left = reading.together(rows)
    in_log: dict[str, _Found] | None = None
    for row in rows:
        record_id = row["record_id"]
        found = reading.found.get(record_id)
        if found is None and record_id in left:
            found = reading.alone(row)
        if found is None or found.bundle_key is None:
            if in_log is None:
                in_log = _in_log(workspace, reading.format, source, {row["record_id"] for row in rows})
            found = in_log.get(record_id, found)
        if found is None:
            found = reading.as_stored(row)
        if found is None:
            placing.kept[REFUSED] += 1
            continue
        if found.bundle_key is None:
            placing.kept[REDACTED] += 1
        place = {
            "record_id": record_id,
            "bundle_key": found.bundle_key or row["bundle_key"],
            "day": found.day or row["day"],
            "skip_reason": found.skip_reason,
        }
        different = [name for name in ("bundle_key", "day", "skip_reason") if place[name] != row[name]]
        if different:
            placing.columns.update(different)
            placing.moved.append({**place, "left": row["bundle_key"]})


@dataclass(frozen=True)
class _Found:
    bundle_key: str | None
    """None: it rests on what was redacted."""
    day: str | None
    """None: its log has no times, so it keeps the day that it has."""
    skip_reason: str | None


class _Reading:
    """Cuts stored texts of one log file as if each stood in a file of its name."""

    def __init__(self, workspace: Workspace, format: LogFormat, source: str, folder: Path) -> None:
        self.identity, self.format = workspace.identity, format
        named = Path(source)
        self.path = folder.joinpath(*[part for part in named.parent.parts[-3:] if part not in ("/", "..")]) / (
            _PACKED.sub("", named.name) or "log"
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.found: dict[str, _Found] = {}

    def together(self, rows: Sequence[dict[str, Any]]) -> set[str]:
        """Cut those that need no second look as lines of one file; the ids of the others."""
        left: set[str] = set()
        for start in range(0, len(rows), _TOGETHER):
            portion = rows[start : start + _TOGETHER]
            pieces = self._cut(b"".join(row["raw"].encode() + b"\n" for row in portion)) if len(portion) > 1 else []
            if len(pieces) != len(portion):
                left |= {row["record_id"] for row in portion}
                continue
            for row, piece in zip(portion, pieces, strict=True):
                if isinstance(piece, SourceRecord) and self._same(piece, row):
                    self.found[row["record_id"]] = self._at(row, piece)
                else:
                    left.add(row["record_id"])
        return left

    def alone(self, row: dict[str, Any]) -> _Found | None:
        """One text by itself; None where what it says is not what the log said."""
        raw = row["raw"].encode()
        for text in (raw + b"\n", b"[" + raw + b"]"):
            piece = self._only(text)
            if piece is None:
                continue
            if self._same(piece, row):
                return self._at(row, piece)
            if orjson.dumps(piece.value) == orjson.dumps(orjson.loads(raw)):
                return self._despite(row, piece, lambda text=text: self._only(_other(text)))
        return None

    def as_stored(self, row: dict[str, Any]) -> _Found | None:
        """By what it was stored with; None where nothing of that says where it belongs."""
        facts = self._facts(row["raw"].encode())
        if facts is None:
            return None
        return self._despite(row, facts, lambda: self._facts(_other(row["raw"].encode())))

    def _despite(self, row: dict[str, Any], said: Any, again: Callable[[], Any]) -> _Found:
        """What is said whatever the tokens in the text are."""
        other = again() if _TOKEN.search(row["raw"].encode()) else said
        found = self._at(row, said)
        if other is None or self._at(row, other).bundle_key != found.bundle_key:
            return _Found(None, found.day, found.skip_reason)
        return found

    def _at(self, row: Mapping[str, Any], said: Any) -> _Found:
        ref = said.bundle_ref
        if ref is None:  # as at landing (chunks.py)
            ref = row["record_id"] if said.vendor_id is not None else row["content_id"]
        return _Found(self.identity.of("bundle", self.format.name, ref), _day(said), said.skip_reason)

    def _same(self, piece: SourceRecord, row: Mapping[str, Any]) -> bool:
        """What is cut now is what was cut at landing: same bytes, same id."""
        return self.identity.of("content", piece.content) == row["content_id"]

    def _facts(self, raw: bytes) -> Facts | None:
        value = orjson.loads(raw)
        placed: Callable[[Any], Facts] | None = getattr(self.format, "placed", None)
        try:
            if placed is not None:
                return placed(value)
            if isinstance(value, dict) and value.keys() >= _WITH_SESSION:
                piece = self._only(orjson.dumps(value["row"]) + b"\n")
                if piece is not None:
                    time = piece.time or moment(value["at"])
                    return Facts(vendor_id=piece.vendor_id, bundle_ref=value["session"], time=time, skip_reason=piece.skip_reason)
        except (BadPieceError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            pass
        return None

    def _only(self, text: bytes) -> SourceRecord | None:
        pieces = self._cut(text)
        return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], SourceRecord) else None

    def _cut(self, text: bytes) -> list[Any]:
        self.path.write_bytes(text)
        try:
            return list(self.format.split(self.path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):  # it is no whole file of its format
            return []


def _in_log(workspace: Workspace, format: LogFormat, source: str, wanted: set[str]) -> dict[str, _Found]:
    """Where the log file itself says that some records belong; without those that stand there no more."""
    found: dict[str, _Found] = {}
    try:
        for chunk in chunks(workspace.identity, format, Position(workspace.path(source))):
            for record_id in wanted & chunk.records.keys():
                one = chunk.records[record_id]
                found[record_id] = _Found(one.bundle_key, _day(one.record), one.record.skip_reason)
    except (OSError, EOFError, ValueError):
        pass
    return found


def _day(said: Any) -> str | None:
    return None if said.time is None else said.time.date().isoformat()


def _other(text: bytes) -> bytes:
    """The same text under other tokens."""
    return _TOKEN.sub(rb"\g<1>000000000000]", text)
