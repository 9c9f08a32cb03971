"""Reads: log files. Writes: landing/records, landing/quarantine. Next: trajectories.

Everything new in the files is landed exactly once: the same bytes again, in any order, split over files in any way, after
a kill at any step, give the same tables (I2). Pieces of one or many files are gathered into a batch. Its bad pieces are
committed first and its records second, in one commit with the offset of every file up to which the batch read it (one app
id per file); a kill between the two leaves the offsets where they were, the pieces are read again, and the ids that are in
the lake already decide that nothing is added twice. A commit is on the disk (`lake.durable`) before the next one builds on
it and before anybody is told, so a log may be rotated away once `land` returned.

While a batch is written, the next one is read: by then no more than two batches are in memory, whatever a file's size.
Where much is to be read, other processes turn blocks of lines into rows (pooled.py); they come back in the order of the
files, and all that is decided, is decided here: ids by number among equals, what is new, and the commits.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.doors.engine import tokenizer_file
from pipelines.doors.lake import Snapshot, sequences_of
from pipelines.errors import ConfigError, SourceError
from pipelines.landing import chunks as cutting
from pipelines.landing import offsets, row_pool
from pipelines.landing.block_rows import Made
from pipelines.landing.chunks import Chunk, ReadWholeError, chunks
from pipelines.landing.document import is_cut
from pipelines.landing.format import BadRecord, LogFormat
from pipelines.landing.head import Head
from pipelines.landing.held import Held
from pipelines.landing.jsonl import LineReader, Lines
from pipelines.landing.naming import Naming
from pipelines.landing.offsets import Position
from pipelines.landing.pooled import Pooled, Reading
from pipelines.landing.redaction_rules import rules_of
from pipelines.landing.row_frames import can_be_told
from pipelines.landing.rows import RAW_LIMIT, Found, RowMaker, Rows, RowSetting
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
    made: dict[str, list[Rows]] = field(default_factory=lambda: {RECORDS.name: [], QUARANTINE.name: []})
    """Rows that another process made, by table."""
    made_ids: set[str] = field(default_factory=set)
    num_made: int = 0
    """Records among them."""
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
            if record_id in self.records or record_id in self.made_ids:
                self.repeated += 1
            else:
                self.records[record_id] = Found(identified, shown, format)
        for record_id, bad in chunk.bad.items():
            if record_id not in self.made_ids:
                self.bad.setdefault(record_id, Found(bad, shown, format))
        self.repeated += chunk.repeated
        self.num_bytes += chunk.num_bytes

    def add_made(self, made: Made) -> None:
        """Take in the rows of a block of lines."""
        for table, rows, found in ((RECORDS.name, made.records, self.records), (QUARANTINE.name, made.bad, self.bad)):
            if not rows.table.num_rows:
                continue
            ids = rows.ids()
            twice = {record_id for record_id in ids if record_id in self.made_ids or record_id in found}
            self.made_ids.update(ids)
            self.made[table].append(rows.without(twice))
            if table == RECORDS.name:
                self.repeated += len(twice)
                self.num_made += len(ids) - len(twice)
        self.repeated += made.repeated
        self.num_bytes += made.num_bytes

    @property
    def num_seen(self) -> int:
        """Records, those that stand in it twice counted twice."""
        return len(self.records) + self.num_made + self.repeated

    @property
    def is_full(self) -> bool:
        """It is time to write it."""
        return (
            self.num_bytes >= cutting.CHUNK_BYTES
            or len(self.records) + len(self.bad) + len(self.made_ids) >= cutting.CHUNK_PIECES
            or len(self.sequences) + len(self.recognised) + len(self.unknown) >= BATCH_FILES
        )


class Landing:
    """Lands files and counts what came of them; `write` False: only counts."""

    def __init__(self, workspace: Workspace, day: str, write: bool) -> None:
        self.workspace, self.write = workspace, write
        rules, now = rules_of(workspace), datetime.datetime.now(datetime.UTC)
        naming = Naming.of(workspace.config)
        self._setting = RowSetting(
            identity=workspace.identity,
            redaction_key=workspace.redaction_key,
            rules=rules.rules,
            allow=rules.allow,
            policy=workspace.config.policy.name,
            day=day,
            now=now,
            volatile=naming.masks.names,
            paths=naming.paths,
        )
        self._tokenizer = partial(tokenizer_file, workspace)
        self._rows = RowMaker(self._setting, self._tokenizer)
        self._num_processes = row_pool.num_processes(workspace.config.landing.workers)
        self._num_bytes = 0
        self._pooled: Pooled | None = None
        self.failed: list[tuple[SourceFile, OSError]] = []
        """Files that could not be read when their turn came."""
        self.records = self.seen = self.quarantined = self.skipped = self.waiting = self.resting = self.unchanged = 0
        self.unfinished: list[str] = []
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
        advance(position.offset)
        reading = Reading(position, shown, format, app_id, started, advance)
        self._num_bytes += max(0, file.size - position.offset)
        reader = self._reader(reading)
        if reader is not None:
            if self._pooled is None:
                pool = row_pool.RowPool(self._setting, self._num_processes - 1, self._tokenizer)
                self._pooled = Pooled(pool, self._rows)
            take, rest = partial(self._in_turn, file, self._made), partial(self._in_turn, file, self._from)
            self._pooled.read(reading, reader, take, rest, partial(self._ended, reading))
        elif self._pooled is not None:
            self._pooled.later(partial(self._in_turn, file, self._alone, reading))
        else:
            self._alone(reading)

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
            self.unfinished.append(self._rows.name(shown))
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
        if self._pooled is not None:
            self._pooled.finish()
        self._flush()
        self._settle()

    def close(self) -> None:
        """End the other processes, and the writer, which may still be at work where the reader failed."""
        if self._pooled is not None:
            self._pooled.pool.close()
        self._writer.shutdown()

    def _reader(self, reading: Reading) -> LineReader | None:
        """What other processes need to read the file; None where they cannot, or where too little is read to start them."""
        if self._num_processes < 2 or self._num_bytes < row_pool.POOL_BYTES:
            return None
        start = reading.start
        pieces = reading.format.split(start.path, start.offset, start.line)
        if not isinstance(pieces, Lines):
            return None
        return pieces.reader if can_be_told((reading.format, pieces.reader)) else None

    def _alone(self, reading: Reading) -> None:
        """Take a file in here."""
        try:
            self._from(reading, reading.start)
        except ReadWholeError:
            reading = reading.anew()
            self._from(reading, reading.start)
        finally:
            self._ended(reading)

    def _from(self, reading: Reading, start: Position) -> None:
        """Take it in from a place on that is not before what is taken in."""
        resumed, counted = reading.resumed, reading.counted
        at_rest, identity = self._is_at_rest(start.path), self.workspace.identity
        for chunk in chunks(identity, reading.format, start, self._held_among, resumed=resumed, counted=counted, at_rest=at_rest):
            self.resting += chunk.rests
            self._batch.add(chunk, reading.shown, reading.format)
            self._acknowledge(reading, chunk.end, chunk.unfinished)

    def _made(self, reading: Reading, made: Made) -> None:
        """Take in its next block."""
        firsts = made.settled(self.workspace.identity, reading.counted)
        if reading.resumed:
            firsts.refuse(self._held_among)
        if made.records.table.num_rows or made.bad.table.num_rows or made.unfinished:
            self._batch.add_made(made)
            self._acknowledge(reading, made.end, made.unfinished)

    def _in_turn(self, file: SourceFile, take: Callable[..., None], reading: Reading, *part: Any) -> None:
        """Take in what other processes, or those before it, made wait; nobody who gave it is there to hear of a problem."""
        try:
            take(reading, *part)
        except ReadWholeError:
            self._alone(reading.anew())
        except OSError as problem:
            reading.abandoned = True
            self.failed.append((file, problem))

    def _acknowledge(self, reading: Reading, end: int, unfinished: bool) -> None:
        reading.num_chunks += 1
        reading.advance(end - reading.end)
        reading.end = end
        reading.position.advance(end)
        self.waiting += unfinished
        if unfinished:
            self.unfinished.append(self._rows.name(reading.shown))
        if reading.position.offset > 0:
            sequence = _Sequence(reading.position.sequence, reading.started, not reading.resumed)
            self._batch.sequences[reading.app_id] = sequence
        self._flush_if_full()

    def _ended(self, reading: Reading) -> None:
        reading.position.close()
        if not reading.abandoned:
            self.unchanged += reading.num_chunks == 0 and reading.resumed
            self._flush_if_full()

    def _is_at_rest(self, path: Path) -> bool:
        # a time that lies ahead (another clock, a copy with its times) says as little about a writer as one that lies back
        return abs(time.time() - path.stat().st_mtime) >= self.workspace.config.landing.at_rest_seconds

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
        again |= self._met_again(batch)
        bad = self._with_made(batch, QUARANTINE.name, self._rows.bad(fresh))
        records = self._with_made(batch, RECORDS.name, self._rows.records(self._fresh(RECORDS.name, batch.records)))
        num_seen = batch.num_seen
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

    def _met_again(self, batch: _Batch) -> dict[str, Met]:
        """Bad pieces that other processes made rows of and that are rows already."""
        rows = [row for made in batch.made[QUARANTINE.name] for row in made.table.to_pylist()]
        held = self._held_among(QUARANTINE.name, [row["record_id"] for row in rows])
        return self._whereabouts.met([row for row in rows if row["record_id"] in held])

    def _with_made(self, batch: _Batch, table: str, rows: Rows) -> Rows:
        """Rows together with those that other processes made, of which the writer takes what is new."""
        if not batch.made[table]:
            return rows
        made = Rows.joined(batch.made[table])
        if not self.write:
            ids = made.ids()
            held = self._held_among(table, ids) | (self._surveyed[table] & set(ids))
            self._surveyed[table].update(ids)
            made = made.without(held)
        return Rows.joined([made, rows])

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
            kept = rows.without(self._among(snapshot, rows.ids()))
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
        with bar("landing", sum(file.size for file in files), unit="bytes") as advance:
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
        for file, problem in landing.failed:
            problems.append(unreadable(file.path, problem))
            if file.format is not None:
                formats[file.format.name] -= 1
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
        formats=dict(sorted((+formats).items())),
        redactions=dict(sorted(landing.redactions.items())),
        days=sorted(landing.days),
        waiting=landing.waiting,
        waiting_files=sorted(landing.unfinished),
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
        return f"there are no log files in {_places(workspace, paths)}"
    if set(formats) == {"empty"}:
        return f"{formats['empty']} empty file(s): no records"
    if landing.waiting:
        return "all that is finished is in the lake already"
    return "every record is in the lake already"


def _places(workspace: Workspace, paths: Sequence[Path] | None) -> str:
    if paths is not None:
        return ", ".join(str(path) for path in paths)
    places = ", ".join(f"{workspace.path(source.path)} ({source.glob})" for source in workspace.config.sources)
    return f"{places}, which [[sources]] of nightshift.toml names; name other files or folders, or mend it"


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
