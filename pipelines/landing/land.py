"""Reads: log files. Writes: landing/records, landing/quarantine. Next: trajectories.

Everything new in the files is landed exactly once: the same bytes again, in any order, split over files in any way, after
a kill at any step, give the same tables (I2). Per chunk of a file the bad pieces are committed first and the records
second, together with the offset up to which the file is read; a kill between the two leaves the offset where it was, the
chunk is read again, and the ids that are in the lake already decide that nothing is added twice.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.doors.engine import tokenizer_file
from pipelines.doors.lake import Snapshot
from pipelines.doors.tokenizer import Spelling, spelling_of
from pipelines.errors import ConfigError, SourceError
from pipelines.landing import offsets
from pipelines.landing.chunks import Chunk, Identified, ReadWholeError, chunks
from pipelines.landing.format import BadRecord, LogFormat
from pipelines.landing.redacted_tokens import with_token_ids
from pipelines.landing.redaction import Redactor, dumped
from pipelines.landing.redaction_rules import Rules, rules_of
from pipelines.landing.sources import SourceFile, find, unreadable
from pipelines.landing.spelling import identities
from pipelines.progress import bar
from pipelines.reports import Landed
from pipelines.schemas import QUARANTINE, RECORDS, TABLES
from pipelines.workspace import Workspace

RAW_LIMIT = 1 << 16
"""Characters of a bad piece that quarantine keeps; file and offsets name the rest."""


def land(
    workspace: Workspace, paths: Sequence[Path] | None = None, *, format: str | None = None, day: str | None = None
) -> Landed:
    """Land what is new in some files and folders; `paths` None: in the configured [[sources]].

    `format` None: recognised file by file. `day` is the day of records whose log has no times; None: today in UTC.
    SourceError where a path is missing or unreadable, UnknownFormatError where a file named itself is of no known format:
    then nothing is landed, except that one unreadable file inside a folder does not keep the others from being landed.
    """
    return _run(workspace, paths, format, day, write=True)


def survey(
    workspace: Workspace, paths: Sequence[Path] | None = None, *, format: str | None = None, day: str | None = None
) -> Landed:
    """What `land` would do, counted without writing anything."""
    return _run(workspace, paths, format, day, write=False)


@dataclass
class Landing:
    """Lands files and counts what came of them; `write` False: only counts."""

    workspace: Workspace
    day: str
    write: bool
    now: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    records: int = 0
    seen: int = 0
    quarantined: int = 0
    skipped: int = 0
    waiting: int = 0
    redactions: Counter[str] = field(default_factory=Counter)
    days: set[str] = field(default_factory=set)
    rules: Rules = field(init=False)
    stored: dict[str, str] = field(default_factory=dict)
    surveyed: dict[str, set[str]] = field(default_factory=lambda: {RECORDS.name: set(), QUARANTINE.name: set()})

    def __post_init__(self) -> None:
        self.rules = rules_of(self.workspace)

    def file(self, file: SourceFile, format: LogFormat, advance: Callable[[int], None]) -> None:
        """Land one file, chunk by chunk."""
        shown = self._shown(file.path)
        app_id = offsets.app_id(self.workspace.identity, shown, file.path)
        position = offsets.resume(file.path, self.workspace.lake.sequence(RECORDS.name, app_id))
        try:
            self._from(position, shown, format, app_id, advance)
        except ReadWholeError:
            self._from(offsets.Position(file.path), shown, format, app_id, advance)

    def again(self, identified: Iterable[Chunk], shown: str, format: LogFormat) -> None:
        """Land pieces that were read before and could not be; how far their file is read does not change."""
        for chunk in identified:
            self._quarantine({record_id: (shown, bad) for record_id, bad in chunk.bad.items()}, format)
            self._records(chunk, shown, format, None, 0)

    def unknown(self, file: SourceFile) -> None:
        """One quarantine row for a file that no format recognises."""
        shown = self._shown(file.path)
        with file.path.open("rb") as stream:
            head = stream.read(2 * RAW_LIMIT)
        binary = b"\0" in head
        detail = "no format recognises this file" + (", which is no text" if binary else "")
        raw = b"" if binary else head
        bad = BadRecord(line=1, byte_start=0, byte_end=file.size, reason="unknown_format", detail=detail, raw=raw)
        self._quarantine({self.workspace.identity.of("record", "unknown", shown): (shown, bad)}, None)

    def _shown(self, path: Path) -> str:
        """The path as stored; names of files need not be UTF-8, text in the lake must."""
        return self.workspace.shown(path).encode("utf-8", "backslashreplace").decode()

    def _stored(self, shown: str) -> str:
        """A file's name in the lake: ids and offsets are taken over the true one."""
        if shown not in self.stored:
            self.stored[shown] = Redactor(self.workspace.redaction_key, self.rules).text(shown)
        return self.stored[shown]

    def _tokenizer(self, value: dict[str, Any]) -> Spelling | None:
        """Of the model that made a call's ids; None where that is not this workspace's policy, whose tokenizer is known."""
        if str(value.get("policy_version")).partition("@")[0] != self.workspace.config.policy.name:
            return None
        path = tokenizer_file(self.workspace)
        return None if path is None else spelling_of(path)

    def _from(
        self, position: offsets.Position, shown: str, format: LogFormat, app_id: str, advance: Callable[[int], None]
    ) -> None:
        advance(position.offset)
        for chunk in chunks(self.workspace.identity, format, position):
            advance(chunk.end - position.offset)
            # a position of its own: `chunks` resumes from the one it was given
            position = offsets.Position(position.path, position.offset, position.line, position.checksum)
            position.advance(chunk.end)
            self._quarantine({record_id: (shown, bad) for record_id, bad in chunk.bad.items()}, format)
            self._records(chunk, shown, format, app_id, position.sequence)
            self.waiting += chunk.unfinished

    def _records(self, chunk: Chunk, shown: str, format: LogFormat, app_id: str | None, sequence: int) -> None:
        def row(record_id: str) -> tuple[dict[str, Any], Counter[str]]:
            return self._record_row(record_id, chunk.records[record_id], shown, format)

        def compute(snapshot: Snapshot) -> tuple[pa.Table, int] | pa.Table | None:
            rows = missing(snapshot.read)
            return (rows, sequence) if sequence > snapshot.sequence else rows

        missing = _Missing(RECORDS.name, list(chunk.records), row)
        self._append(missing, compute, app_id)
        skipped = sum(1 for added in missing.added if added["skip_reason"] is not None)
        self.skipped += skipped
        self.records += len(missing.added) - skipped
        self.seen += len(chunk.records) + chunk.repeated - len(missing.added)
        self.days.update(added["day"] for added in missing.added)
        self.redactions.update(missing.redactions)

    def _quarantine(self, bad: dict[str, tuple[str, BadRecord]], format: LogFormat | None) -> None:
        if not bad:
            return

        def row(record_id: str) -> tuple[dict[str, Any], Counter[str]]:
            return self._bad_row(record_id, *bad[record_id], format)

        missing = _Missing(QUARANTINE.name, list(bad), row)
        self._append(missing, lambda snapshot: missing(snapshot.read), None)
        self.quarantined += len(missing.added)
        self.redactions.update(missing.redactions)

    def _append(self, missing: _Missing, compute: Callable[[Snapshot], Any], app_id: str | None) -> None:
        if self.write:
            self.workspace.lake.append_computed(missing.table, compute, app_id=app_id)
            return
        known = self.surveyed[missing.table]
        missing.ids = [record_id for record_id in missing.ids if record_id not in known]
        missing(lambda columns, filter: self.workspace.lake.read(missing.table, columns, filter))
        known.update(missing.ids)

    def _record_row(
        self, record_id: str, identified: Identified, shown: str, format: LogFormat
    ) -> tuple[dict[str, Any], Counter[str]]:
        record, redactor = identified.record, Redactor(self.workspace.redaction_key, self.rules)
        redacted = redactor.value(record.value)
        spelled = None
        if redactor.counts.total():  # the text changes and no id may: they are taken before
            redacted = with_token_ids(record.value, redacted, redactor, partial(self._tokenizer, record.value))
            try:
                spelled = identities(self.workspace.identity, format.spell(record.value))
            except (ValueError, KeyError, TypeError, AttributeError, IndexError):
                spelled = None  # not to be read by this parser: the trajectories stage says so of the whole bundle
        row = {
            "record_id": record_id,
            "content_id": identified.content_id,
            "bundle_key": identified.bundle_key,
            "day": self.day if record.time is None else record.time.strftime("%Y-%m-%d"),
            "format": format.name,
            "parser_version": format.parser_version,
            "skip_reason": record.skip_reason,
            "raw": dumped(redacted),
            "identities": None if spelled is None else dumped(spelled),
            "rules": self.rules.hash,
            "source": self._stored(shown),
            "line": record.line,
            "byte_start": record.byte_start,
            "byte_end": record.byte_end,
            "landed_at": self.now,
        }
        return row, redactor.counts

    def _bad_row(
        self, record_id: str, shown: str, bad: BadRecord, format: LogFormat | None
    ) -> tuple[dict[str, Any], Counter[str]]:
        redactor = Redactor(self.workspace.redaction_key, self.rules)
        row = {
            "record_id": record_id,
            "day": self.now.strftime("%Y-%m-%d"),
            "format": None if format is None else format.name,
            "rules": self.rules.hash,
            "source": self._stored(shown),
            "line": bad.line,
            "byte_start": bad.byte_start,
            "byte_end": bad.byte_end,
            "reason": bad.reason,
            "detail": redactor.text(bad.detail),
            "raw": redactor.bad_text(bad.raw, RAW_LIMIT),
            "landed_at": self.now,
        }
        return row, redactor.counts


class _Missing:
    """Of some ids, the rows that a version of a table does not hold; rows are made once, however often it is asked."""

    def __init__(self, table: str, ids: list[str], row: Callable[[str], tuple[dict[str, Any], Counter[str]]]) -> None:
        self.table = table
        self.ids = ids
        self.row = row
        self.made: dict[str, tuple[dict[str, Any], Counter[str]]] = {}
        self.new: list[str] = []

    def __call__(self, read: Callable[..., pa.Table]) -> pa.Table:
        held: set[str] = set()
        if self.ids:
            rows = read(columns=["record_id"], filter=ds.field("record_id").isin(self.ids))
            held.update(rows.column("record_id").to_pylist())
        self.new = [record_id for record_id in self.ids if record_id not in held]
        for record_id in self.new:
            if record_id not in self.made:
                self.made[record_id] = self.row(record_id)
        return pa.Table.from_pylist(self.added, schema=TABLES[self.table].schema)

    @property
    def added(self) -> list[dict[str, Any]]:
        """The rows that were missing when it was last asked."""
        return [self.made[record_id][0] for record_id in self.new]

    @property
    def redactions(self) -> Counter[str]:
        """Secrets that were replaced in them, by rule."""
        total: Counter[str] = Counter()
        for record_id in self.new:
            total.update(self.made[record_id][1])
        return total


def _run(workspace: Workspace, paths: Sequence[Path] | None, format: str | None, day: str | None, *, write: bool) -> Landed:
    landing = Landing(workspace, _checked_day(day), write)
    files, problems = find(workspace, paths, format)
    formats: Counter[str] = Counter()
    with bar("landing", sum(file.size for file in files)) as advance:
        for file in files:
            try:
                if file.format is not None:
                    landing.file(file, file.format, advance)
                elif not file.empty:
                    landing.unknown(file)
            except OSError as problem:
                problems.append(unreadable(file.path, problem))
                continue
            formats[file.format.name if file.format else "empty" if file.empty else "unknown"] += 1
    if problems:
        raise _first(problems)
    lake = workspace.lake
    return Landed(
        records=landing.records,
        seen=landing.seen,
        quarantined=landing.quarantined,
        skipped=landing.skipped,
        formats=dict(sorted(formats.items())),
        redactions=dict(sorted(landing.redactions.items())),
        days=sorted(landing.days),
        waiting=landing.waiting,
        versions={name: version for name in (RECORDS.name, QUARANTINE.name) if (version := lake.version(name)) is not None},
        why_nothing=_why_nothing(workspace, landing, paths, formats),
    )


def _why_nothing(workspace: Workspace, landing: Landing, paths: Sequence[Path] | None, formats: Counter[str]) -> str | None:
    if landing.records or landing.skipped or landing.quarantined:
        return None
    if paths is None and not workspace.config.sources:
        return "no [[sources]] are configured in nightshift.toml"
    if not formats:
        return "there are no log files"
    if set(formats) == {"empty"}:
        return f"{formats['empty']} empty file(s): no records"
    waiting = f", {landing.waiting} file(s) end in a line that is still being written" if landing.waiting else ""
    return f"every record is in the lake already{waiting}"


def _first(problems: list[SourceError]) -> SourceError:
    if len(problems) == 1:
        return problems[0]
    return SourceError(f"{problems[0]}; so are {len(problems) - 1} more files. All others were landed.", **problems[0].ids)


def _checked_day(day: str | None) -> str:
    if day is None:
        return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    try:
        return datetime.date.fromisoformat(day).isoformat()
    except ValueError:
        raise ConfigError(f"{day!r} is no day; write it as YYYY-MM-DD") from None
