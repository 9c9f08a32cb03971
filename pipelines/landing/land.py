"""Reads: log files. Writes: landing/records, landing/quarantine. Next: trajectories.

Everything new in the files is landed exactly once: the same bytes again, in any order, split over files in any way, after
a kill at any step, give the same tables (I2). Pieces of one or many files are gathered into a batch. Its bad pieces are
committed first and its records second, in one commit with the offset of every file up to which the batch read it (one app
id per file); a kill between the two leaves the offsets where they were, the pieces are read again, and the ids that are in
the lake already decide that nothing is added twice. A commit is on the disk (`lake.durable`) before the next one builds on
it and before anybody is told, so a log may be rotated away once `land` returned.

While a batch is written, the next one is read: by then no more than two batches are in memory, whatever a file's size.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from pipelines.doors.lake import Snapshot, sequences_of
from pipelines.errors import ConfigError, SourceError
from pipelines.landing import chunks as cutting
from pipelines.landing import offsets
from pipelines.landing.chunks import Chunk, ReadWholeError, chunks
from pipelines.landing.document import is_cut
from pipelines.landing.format import BadRecord, LogFormat
from pipelines.landing.head import Head
from pipelines.landing.held import Held
from pipelines.landing.rows import RAW_LIMIT, Found, RowMaker, Rows
from pipelines.landing.sources import SourceFile, find, unreadable
from pipelines.landing.whereabouts import Met, Whereabouts
from pipelines.progress import bar
from pipelines.reports import Landed
from pipelines.schemas import QUARANTINE, RECORDS, TABLES
from pipelines.workspace import Workspace

BATCH_FILES = 2_000
"""Files whose offsets one commit may move."""


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
class _Sequence:
    """How far a batch read one file."""

    value: int
    started: int
    """The committed sequence that was there before the file was read."""
    anew: bool
    """The file was not what that sequence had seen: it was read from the start."""

    def above(self, held: int) -> bool:
        """Whether it takes the place of what is committed: a writer that lags behind moves nothing back."""
        return self.value > held or (self.anew and held == self.started and self.value != held)


@dataclass
class _Batch:
    """What one commit to each table will hold."""

    records: dict[str, Found] = field(default_factory=dict)
    bad: dict[str, Found] = field(default_factory=dict)
    sequences: dict[str, _Sequence] = field(default_factory=dict)
    recognised: list[str] = field(default_factory=list)
    """Files that a format recognises, which may be in quarantine from when none did."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Files that none recognises, with the id of each in quarantine."""
    repeated: int = 0
    num_bytes: int = 0

    def add(self, chunk: Chunk, shown: str, format: LogFormat) -> None:
        """Take in a chunk of a file."""
        for record_id, identified in chunk.records.items():
            self.repeated += record_id in self.records
            self.records.setdefault(record_id, Found(identified, shown, format))
        for record_id, bad in chunk.bad.items():
            self.bad.setdefault(record_id, Found(bad, shown, format))
        self.repeated += chunk.repeated
        self.num_bytes += chunk.num_bytes

    @property
    def is_full(self) -> bool:
        """It is time to write it."""
        return (
            self.num_bytes >= cutting.CHUNK_BYTES
            or len(self.records) + len(self.bad) >= cutting.CHUNK_PIECES
            or len(self.recognised) + len(self.unknown) >= BATCH_FILES
        )


class Landing:
    """Lands files and counts what came of them; `write` False: only counts."""

    def __init__(self, workspace: Workspace, day: str, write: bool) -> None:
        self.workspace, self.write = workspace, write
        self._rows = RowMaker(workspace, day)
        self.records = self.seen = self.quarantined = self.skipped = self.waiting = self.resting = self.unchanged = 0
        self.redactions: Counter[str] = Counter()
        self.days: set[str] = set()
        self._batch = _Batch()
        self._held = {table: Held() for table in (RECORDS.name, QUARANTINE.name)}
        self._whereabouts = Whereabouts(workspace)
        self._lock = threading.Lock()
        self._surveyed: dict[str, set[str]] = {table: set() for table in self._held}
        handle = workspace.lake.handle(RECORDS.name)
        self._sequences: tuple[int, dict[str, int]] = (-1, {}) if handle is None else (handle.version(), sequences_of(handle))
        self._writer = ThreadPoolExecutor(1, "landing")
        self._writing: Future[None] | None = None

    def file(self, file: SourceFile, format: LogFormat, advance: Callable[[int], None]) -> None:
        """Read one file, chunk by chunk."""
        shown = self._shown(file.real)
        self._batch.recognised.append(self._rows.name(shown))
        app_id = offsets.app_id(self.workspace.identity, shown)
        started = self._sequences[1].get(app_id, 0)
        position = offsets.resume(file.path, started)
        try:
            self._from(position, shown, format, app_id, started, advance)
        except ReadWholeError:
            self._from(position.at_start(), shown, format, app_id, started, advance)
        finally:
            position.close()

    def again(self, identified: Iterable[Chunk], shown: str, format: LogFormat) -> None:
        """Land pieces that were read before and could not be; how far their file is read does not change."""
        try:
            for chunk in identified:
                self._batch.add(chunk, shown, format)
                self._flush_if_full()
            self.finish()
        finally:
            self.close()

    def unknown(self, file: SourceFile) -> None:
        """One quarantine row for a file that no format recognises."""
        shown = self._shown(file.real)
        with file.path.open("rb") as stream:
            head = stream.read(2 * RAW_LIMIT)
        is_whole = len(head) == file.size
        if is_whole and not self._is_at_rest(file.path) and not Head(file.path, head).values and _begins_a_document(head):
            self.waiting += 1
            self.resting += 1
            return
        binary = b"\0" in head
        detail = "no format recognises this file" + (", which is no text" if binary else "")
        raw = b"" if binary else head
        bad = BadRecord(line=1, byte_start=0, byte_end=file.size, reason="unknown_format", detail=detail, raw=raw)
        record_id = self.workspace.identity.of("record", "unknown", head)
        self._batch.bad.setdefault(record_id, Found(bad, shown, None))
        self._batch.unknown[self._rows.name(shown)] = record_id
        self._batch.num_bytes += len(raw)
        self._flush_if_full()

    def finish(self) -> None:
        """Write what is left and wait until all is committed."""
        self._flush()
        self._settle()

    def close(self) -> None:
        """End the writer, which may still be at work where the reader failed."""
        self._writer.shutdown()

    def _from(
        self,
        position: offsets.Position,
        shown: str,
        format: LogFormat,
        app_id: str,
        started: int,
        advance: Callable[[int], None],
    ) -> None:
        advance(position.offset)
        anew, num_chunks, end = position.offset == 0, 0, position.offset
        start = offsets.Position(position.path, position.offset, position.line)  # `position` runs ahead of where `chunks` began
        at_rest = self._is_at_rest(position.path)
        for chunk in chunks(self.workspace.identity, format, start, self._held_among, at_rest=at_rest):
            num_chunks += 1
            advance(chunk.end - end)
            end = chunk.end
            position.advance(chunk.end)
            self.waiting += chunk.unfinished
            self.resting += chunk.rests
            self._batch.add(chunk, shown, format)
            if position.offset > 0:
                self._batch.sequences[app_id] = _Sequence(position.sequence, started, anew)
            self._flush_if_full()
        self.unchanged += num_chunks == 0 and not anew
        self._flush_if_full()

    def _is_at_rest(self, path: Path) -> bool:
        return time.time() - path.stat().st_mtime >= self.workspace.config.landing.at_rest_seconds

    def _shown(self, real: Path) -> str:
        """The path as stored; names of files need not be UTF-8, text in the lake must."""
        return self.workspace.shown_real(real).encode("utf-8", "backslashreplace").decode()

    def _held_among(self, table: str, ids: Sequence[str]) -> set[str]:
        """Those of some ids that the newest version of a table holds."""
        handle = self.workspace.lake.handle(table) if ids else None
        if handle is None:
            return set()
        return self._among(Snapshot(TABLES[table], handle), ids)

    def _among(self, snapshot: Snapshot, ids: Sequence[str]) -> set[str]:
        with self._lock:  # the reader asks while the writer does
            return self._held[snapshot.spec.name].among(snapshot, ids)

    def _flush_if_full(self) -> None:
        if self._batch.is_full:
            self._flush()

    def _flush(self) -> None:
        batch, self._batch = self._batch, _Batch()
        fresh = self._fresh(QUARANTINE.name, batch.bad)
        again = {
            record_id: Met(one.piece, self._rows.name(one.shown))
            for record_id, one in batch.bad.items()
            if record_id not in fresh and isinstance(one.piece, BadRecord)
        }
        bad = self._rows.bad(fresh)
        num_seen = len(batch.records) + batch.repeated
        records = self._rows.records(self._fresh(RECORDS.name, batch.records))
        if self.write:
            self._settle()
            self._writing = self._writer.submit(self._commit, bad, records, batch, again, num_seen)
        else:
            self._count(bad, records, num_seen)

    def _fresh(self, table: str, found: dict[str, Found]) -> dict[str, Found]:
        """What is not in the table yet, or is being written; whether it still is not, the writer looks again."""
        held = self._held_among(table, list(found))
        if not self.write:
            held |= found.keys() & self._surveyed[table]
            self._surveyed[table] |= found.keys()
        return {record_id: one for record_id, one in found.items() if record_id not in held} if held else found

    def _settle(self) -> None:
        """Wait until the batch that is being written is committed."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _commit(self, bad: Rows, records: Rows, batch: _Batch, again: dict[str, Met], num_seen: int) -> None:
        bad = self._append(QUARANTINE.name, bad, {})
        records = self._append(RECORDS.name, records, batch.sequences)
        self._count(bad, records, num_seen)
        self._whereabouts.landed(bad.table.select(["record_id", "source", "reason"]).to_pylist())
        self._whereabouts.settle(again, batch.recognised, batch.unknown)

    def _append(self, table: str, rows: Rows, sequences: dict[str, _Sequence]) -> Rows:
        """Commit the rows that are missing together with the sequences, and return them."""
        kept = rows

        def compute(snapshot: Snapshot) -> tuple[pa.Table, dict[str, int]]:
            nonlocal kept
            kept = rows.without(self._among(snapshot, rows.table.column("record_id").to_pylist()))
            if not sequences:
                return kept.table, {}
            self._sequences = snapshot.handle.version(), sequences_of(snapshot.handle, self._sequences)
            held = self._sequences[1]
            return kept.table, {name: one.value for name, one in sequences.items() if one.above(held.get(name, 0))}

        if rows.table.num_rows or sequences:
            self.workspace.lake.append_computed(table, compute)
        return kept

    def _count(self, bad: Rows, records: Rows, num_seen: int) -> None:
        num_skipped = records.table.num_rows - records.table.column("skip_reason").null_count
        self.skipped += num_skipped
        self.records += records.table.num_rows - num_skipped
        self.seen += num_seen - records.table.num_rows
        self.quarantined += bad.table.num_rows
        self.days.update(records.table.column("day").unique().to_pylist())
        for rows in (bad, records):
            self.redactions.update(rows.total())


def _begins_a_document(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"{", b"[") and is_cut(head)


def _run(workspace: Workspace, paths: Sequence[Path] | None, format: str | None, day: str | None, *, write: bool) -> Landed:
    landing = Landing(workspace, _checked_day(day), write)
    files, problems = find(workspace, paths, format)
    formats: Counter[str] = Counter()
    try:
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
            landing.finish()
    finally:
        landing.close()
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
        resting=landing.resting,
        unchanged=landing.unchanged,
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
    waiting = f", {landing.waiting} file(s) end in what is still being written" if landing.waiting else ""
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
