"""The door to Delta: the only module that imports deltalake.

Ways to write, each safe to be killed and to be repeated:

- `append_computed`: read, compute what is missing, append; commits of one table are serialised, so two writers cannot
  both add the same row. `Transaction` alone does not stop a replay in Delta: the sequence is read from the handle, and
  the write goes through that same handle, so a racing writer is refused, re-reads, and finds the work done.
- `replace_computed`: rebuild the rows of some partitions in one commit, recomputed after a lost race.
- `replace_rows`: the same for the rows that some ids name, whatever partitions they lie in; the engine copies the other rows
  of their files by itself, so memory grows with the rows that are replaced and not with their days.

What was replaced stays readable as an older version until `vacuum`. A table that an older nightshift made gets the columns
that it lacks with the first write, and is read with nulls until then.

Statistics in the Delta log outlive a delete, so only the id and day columns of a table get any (schemas.TableSpec).
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
from deltalake import ColumnProperties, CommitProperties, DeltaTable, Schema, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from pipelines.doors import delta_log, parts, table_files
from pipelines.errors import LakeConflictError, LakeError
from pipelines.schemas import TABLES, TableSpec
from pipelines.steps import reached

Handle = DeltaTable
"""An opened version of a table; other modules name the type through this door."""

SERIAL = "nightshift/serial"
"""App id that every serialised commit of a table advances by one, whoever writes it."""

MAX_TRIES = 20
"""Lost races before a write gives up: each loser waits for nothing but a re-read, and 20 losses in a row were never seen."""

RETENTION_DAYS = 90
"""How long a table remembers an app id that commits no more; those of source files are the many (landing/offsets.py)."""

ORPHAN_HOURS = 24
"""A data file that no version names and that is older was left by a writer that was killed, not by one that is at work."""

_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.:|@-]+")


@dataclass(frozen=True)
class Snapshot:
    """One version of a table, pinned: what `compute` reads is what the commit is checked against."""

    spec: TableSpec
    handle: DeltaTable

    def read(self, columns: Sequence[str] | None = None, filter: ds.Expression | None = None) -> pa.Table:
        """Rows of this version, the given columns, in no particular order."""
        return _read(self.handle, self.spec, columns, filter)

    def files(self) -> list[str]:
        """Paths of its data files below the table's folder; a file never changes."""
        return pa.table(self.handle.get_add_actions(flatten=True)).column("path").to_pylist()

    def file_system(self) -> fs.FileSystem:
        """The table's folder."""
        return file_system_of(self.handle)


@dataclass(frozen=True)
class Commit:
    """What a write did."""

    table: str
    version: int
    """Version of the table after the write."""
    num_rows: int
    """Rows that it added; 0 where there was nothing to add and no commit was made."""


class Lake:
    """The tables of schemas.TABLES under one root, a local folder or an object-store URI."""

    def __init__(self, root: str, storage_options: dict[str, str] | None = None, *, durable: bool = True) -> None:
        self.durable = durable
        self.root = root.rstrip("/")
        self.storage_options = storage_options
        self.is_local = "://" not in root

    def uri(self, name: str) -> str:
        """Where a table lies."""
        return f"{self.root}/{name}"

    def handle(self, name: str) -> DeltaTable | None:
        """The table's newest version, None where it was never written."""
        try:
            return DeltaTable(self.uri(name), storage_options=self.storage_options)
        except TableNotFoundError:
            folder = local_path(self, name)
            if folder is not None and next(folder.rglob("*.parquet"), None) is not None:  # to begin anew would hide what it held
                said = f"table {name} at {folder} has data files and no _delta_log; `nightshift doctor` says what to do"
                raise LakeError(said, table=name) from None
            return None
        except (DeltaError, OSError) as problem:
            raise LakeError(f"table {name} at {self.uri(name)} cannot be opened: {_first_line(problem)}", table=name) from problem

    def version(self, name: str) -> int | None:
        """Newest version of a table, None where it was never written."""
        handle = self.handle(name)
        return None if handle is None else handle.version()

    def read(self, name: str, columns: Sequence[str] | None = None, filter: ds.Expression | None = None) -> pa.Table:
        """Rows of the newest version in no particular order; an empty table where it was never written."""
        spec, handle = TABLES[name], self.handle(name)
        if handle is None:
            schema = spec.schema if columns is None else pa.schema([spec.schema.field(column) for column in columns])
            return schema.empty_table()
        return _read(handle, spec, columns, filter)

    def num_rows(self, name: str) -> int:
        """Rows of the newest version, counted from the files' footers."""
        handle = self.handle(name)
        return 0 if handle is None else dataset_of(handle).count_rows()

    def sequences(self, name: str) -> dict[str, int]:
        """App id -> last committed sequence, of every app id that ever committed to the table and was not forgotten since."""
        handle = self.handle(name)
        return {} if handle is None else sequences_of(handle)

    def partitions(self, name: str) -> set[str]:
        """Values of the partition column that the newest version has files of."""
        handle, column = self.handle(name), TABLES[name].partition
        return set() if handle is None or column is None else parts.partitions(handle, column)

    def at(self, name: str, version: int) -> DeltaTable | None:
        """An earlier version of a table; None where it cannot be read any more."""
        try:
            return DeltaTable(self.uri(name), version, self.storage_options)
        except (DeltaError, OSError):
            return None

    def changed_since(self, name: str, version: int, column: str) -> set[str] | None:
        """Values of an id or day column in the files that were added after a version, and for the partition column also of those
        that were taken out; None where that version cannot be read any more, so that nobody can tell.
        """
        handle = self.handle(name)
        if handle is None or version == handle.version():
            return set()
        before = self.at(name, version)
        if before is None:
            return None
        if column == TABLES[name].partition:
            return parts.partitions_that_differ(before, handle, column)
        added = parts.files_added(before, handle)
        if not added:
            return set()
        found = ds.dataset(added, format="parquet", filesystem=file_system_of(handle)).to_table(columns=[column])
        return set(found.column(column).unique().to_pylist()) - {None}

    def append_computed(
        self, name: str, compute: Callable[[Snapshot], pa.Table | tuple[pa.Table, Mapping[str, int]] | None]
    ) -> Commit:
        """Append what `compute` finds missing in the pinned version of a table.

        `compute` gets a Snapshot and returns rows, or (rows, {app id: sequence}): the sequences are committed together with
        the rows (a commit without rows records them too). None, or no rows and no sequence: nothing is committed. It may be
        called several times and must not have side effects.
        """
        spec = TABLES[name]
        for _ in range(MAX_TRIES):
            handle = self._grown(spec)
            if handle is None:
                continue
            computed = compute(Snapshot(spec, handle))
            rows, sequences = computed if isinstance(computed, tuple) else (computed, {})
            if rows is None or (rows.num_rows == 0 and not sequences):
                return Commit(name, handle.version(), 0)
            now = int(time.time() * 1000)  # when it was written decides when it is forgotten
            transactions = [Transaction(app_id, sequence, now) for app_id, sequence in sequences.items()]
            transactions.append(Transaction(SERIAL, (handle.transaction_version(SERIAL) or 0) + 1))
            reached(f"{name}:before_commit")
            if self._write(handle, spec, rows, transactions, mode="append"):
                reached(f"{name}:after_commit")
                return Commit(name, handle.version(), rows.num_rows)
        raise LakeConflictError(
            f"table {name}: other writers won {MAX_TRIES} times in a row; run the same command again", table=name
        )

    def append(self, name: str, rows: pa.Table) -> Commit:
        """Append rows whose key is known not to be there yet (serialised like `append_computed`)."""
        return self.append_computed(name, lambda _: rows)

    def append_missing(self, name: str, rows: pa.Table, *, among: ds.Expression | None = None) -> Commit:
        """Append those rows whose key (TableSpec.key) the table does not hold yet; `among`: where in the table they could be."""
        key = list(TABLES[name].key)

        def compute(snapshot: Snapshot) -> pa.Table:
            held = snapshot.read(columns=key, filter=among)
            if held.num_rows == 0:
                return rows
            # keys alone are joined: Arrow refuses to carry list columns through a join
            numbered = rows.select(key).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
            missing = numbered.join(held, keys=key, join_type="left anti").column("row")
            return rows.take(missing.combine_chunks().sort())

        return self.append_computed(name, compute)

    def replace_computed(
        self,
        name: str,
        values: Sequence[str],
        compute: Callable[[Snapshot], pa.Table],
        *,
        sequences: Mapping[str, int] | None = None,
    ) -> Commit:
        """Replace the rows of some partitions (TableSpec.partition in `values`) by what `compute` returns, in one commit."""
        partition = TABLES[name].partition
        if partition is None:
            raise LakeError(f"table {name} has no partition column to replace by")
        return self.replace_rows(name, partition, values, compute, sequences=sequences)

    def replace_rows(
        self,
        name: str,
        column: str,
        values: Sequence[str],
        compute: Callable[[Snapshot], pa.Table | None],
        *,
        partition: str | None = None,
        sequences: Mapping[str, int] | None = None,
    ) -> Commit:
        """Replace the rows whose `column` (a day or an id) is in `values` by what `compute` returns, in one commit.

        Every returned row must have one of the values too. `partition`: only rows of this partition, which spares the engine
        the search through the others. `sequences` ({app id: sequence}) are committed together with the rows. None: nothing is changed. Like in `append_computed`, `compute`
        may be called several times.
        """
        spec = TABLES[name]
        for value in (*values, *(() if partition is None else (partition,))):
            if not _PLAIN_VALUE.fullmatch(value):
                raise LakeError(f"table {name}: {value!r} is no value to replace by")
        listed = ", ".join(f"'{value}'" for value in sorted(set(values)))
        predicate = f"{column} IN ({listed})"
        if partition is not None:
            predicate = f"{spec.partition} = '{partition}' AND {predicate}"
        for _ in range(MAX_TRIES):
            handle = self._grown(spec)
            if handle is None:
                continue
            rows = compute(Snapshot(spec, handle))
            if rows is None or not values:
                return Commit(name, handle.version(), 0)
            told = {SERIAL: (handle.transaction_version(SERIAL) or 0) + 1, **(sequences or {})}
            transactions = [Transaction(app_id, sequence) for app_id, sequence in told.items()]
            reached(f"{name}:before_commit")
            if self._write(handle, spec, rows, transactions, mode="overwrite", predicate=predicate):
                reached(f"{name}:after_commit")
                return Commit(name, handle.version(), rows.num_rows)
        raise LakeConflictError(
            f"table {name}: other writers won {MAX_TRIES} times in a row; run the same command again", table=name
        )

    def vacuum(self, name: str, *, min_age_hours: int = ORPHAN_HOURS) -> list[str]:
        """Delete the files that only older versions name, at once, and what killed writers left, once it is old enough.

        Afterwards the older versions cannot be read any more. A file that a writer has not committed yet is named by no
        version, which is why unnamed files must be older than `min_age_hours`. Returns the paths that are gone.
        """
        handle = self.handle(name)
        if handle is None:
            return []
        try:
            gone = handle.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=False)
            gone += handle.vacuum(retention_hours=min_age_hours, dry_run=False, enforce_retention_duration=False, full=True)
        except (DeltaError, OSError) as problem:
            raise LakeError(f"table {name} cannot be vacuumed: {_first_line(problem)}", table=name) from problem
        return sorted(set(gone))

    def drop_missing_files(self, name: str) -> None:
        """Take files that are gone out of the newest version; what they held is lost, and can be written again."""
        handle = self.handle(name)
        if handle is not None:
            try:
                handle.repair(dry_run=False)
            except (DeltaError, OSError) as problem:
                raise LakeError(f"table {name} cannot be mended: {_first_line(problem)}", table=name) from problem

    def restart_sequences(self, name: str, app_ids: Sequence[str]) -> None:
        """Set the sequence of some app ids back to the beginning, so that what they stand for is worked on anew."""
        spec = TABLES[name]
        for _ in range(MAX_TRIES):
            handle = self._grown(spec)
            if handle is None:
                continue
            started = [app_id for app_id in app_ids if (handle.transaction_version(app_id) or 0) > 1]
            if not started:
                return
            serial = Transaction(SERIAL, (handle.transaction_version(SERIAL) or 0) + 1)
            restarted = [Transaction(app_id, 1) for app_id in started]
            if self._write(handle, spec, spec.schema.empty_table(), [serial, *restarted], mode="append"):
                return
        raise LakeConflictError(
            f"table {name}: other writers won {MAX_TRIES} times in a row; run the same command again", table=name
        )

    def _grown(self, spec: TableSpec) -> DeltaTable | None:
        """The newest version, made where there is none and with all columns of the schema; None after a lost race for that."""
        handle = self.handle(spec.name) or self._create(spec)
        held = {field.name for field in handle.schema().fields}
        lacking = [spec.schema.field(name) for name in spec.schema.names if name not in held]
        if not lacking:
            return handle
        try:
            handle.alter.add_columns(list(Schema.from_arrow(pa.schema(lacking)).fields))
        except CommitFailedError:
            return None
        except (DeltaError, OSError) as problem:
            raise LakeError(f"table {spec.name} cannot get new columns: {_first_line(problem)}", table=spec.name) from problem
        return handle

    def first_commit(self, name: str) -> bytes:
        """What the first commit of a table says: its schema and settings, no rows."""
        with tempfile.TemporaryDirectory() as folder:
            Lake(folder)._create(TABLES[name])
            return (Path(folder) / name / "_delta_log" / f"{0:020}.json").read_bytes()

    def _create(self, spec: TableSpec) -> DeltaTable:
        try:
            return DeltaTable.create(
                self.uri(spec.name),
                schema=spec.schema,
                mode="ignore",
                partition_by=[spec.partition] if spec.partition else None,
                configuration={
                    "delta.dataSkippingStatsColumns": ",".join(spec.statistics),
                    "delta.setTransactionRetentionDuration": f"interval {RETENTION_DAYS} days",
                },
                storage_options=self.storage_options,
            )
        except CommitFailedError as problem:
            # two writers made it at once: the loser's table is the winner's
            made = self.handle(spec.name)
            if made is not None:
                return made
            raise LakeError(f"table {spec.name} cannot be made at {self.uri(spec.name)}: {_first_line(problem)}") from problem
        except (DeltaError, OSError) as problem:
            raise LakeError(f"table {spec.name} cannot be made at {self.uri(spec.name)}: {_first_line(problem)}") from problem

    def _write(
        self,
        handle: DeltaTable,
        spec: TableSpec,
        rows: pa.Table,
        transactions: list[Transaction],
        *,
        mode: str,
        predicate: str | None = None,
    ) -> bool:
        """True once committed, False where another writer was first."""
        try:
            write_deltalake(
                handle,
                conform(rows, spec),
                mode=mode,  # type: ignore[arg-type]  # the overloads split on literal modes
                predicate=predicate,
                commit_properties=CommitProperties(app_transactions=transactions),
                writer_properties=_writing(spec),
            )
            if (folder := local_path(self, spec.name)) is not None:
                if self.durable:
                    delta_log.make_durable(folder, handle.version())
                table_files.note(folder, handle.version())
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as problem:
            raise LakeError(f"table {spec.name} cannot be written: {_first_line(problem)}", table=spec.name) from problem
        return True


def _writing(spec: TableSpec) -> WriterProperties:
    """Long texts are compressed well enough at the fastest level, and would stand in the file twice more as their own minimum
    and maximum."""
    columns = {
        name: ColumnProperties(dictionary_enabled=False, statistics_enabled="CHUNK" if name in spec.statistics else "NONE")
        for name in spec.unlike
    }
    return WriterProperties(compression="ZSTD", compression_level=1, column_properties=columns)


def sequences_of(handle: Handle, known: tuple[int, dict[str, int]] | None = None) -> dict[str, int]:
    """App id -> last committed sequence in a pinned version; `known`: the version and sequences of an earlier one."""
    try:
        return delta_log.transactions(file_system_of(handle), handle.version(), known)
    except (OSError, pa.ArrowInvalid) as problem:
        raise LakeError(f"the log of {handle.table_uri} cannot be read: {_first_line(problem)}") from problem


def file_system_of(handle: Handle) -> fs.FileSystem:
    """The folder of a table. A local one is read by Arrow itself (see `dataset_of`)."""
    location = handle.table_uri
    if "://" in location and not location.startswith("file://"):
        return fs.PyFileSystem(DeltaStorageHandler.from_table(handle._table))
    return fs.SubTreeFileSystem(unquote(location.removeprefix("file://")), fs.LocalFileSystem())


def conform(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """The table's columns in its order and types; LakeError names a column that is missing or does not fit."""
    missing = [column for column in spec.schema.names if column not in rows.column_names]
    if missing:
        raise LakeError(f"table {spec.name}: rows without {', '.join(missing)}", table=spec.name)
    try:
        return rows.select(spec.schema.names).cast(spec.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise LakeError(f"table {spec.name}: {_first_line(problem)}", table=spec.name) from problem


def dataset_of(handle: Handle, files: Sequence[str] | None = None) -> ds.Dataset:
    """A pinned version as an Arrow dataset; of some of its files (as `parts` names them) where they are given.

    A local table is read through Arrow's own file system: deltalake's default calls back into Python from Arrow's threads,
    and a process that ends while one of them still closes a file is aborted, work done and all (3 of 80 on a busy machine).
    """
    location = handle.table_uri
    is_local = "://" not in location or location.startswith("file://")
    dataset = handle.to_pyarrow_dataset(filesystem=file_system_of(handle)) if is_local else handle.to_pyarrow_dataset()
    if files is None:
        return dataset
    names = {PurePosixPath(unquote(file)).name for file in files}  # a data file's own name is unique in its table
    kept = [fragment for fragment in dataset.get_fragments() if PurePosixPath(unquote(fragment.path)).name in names]
    return ds.FileSystemDataset(kept, dataset.schema, dataset.format, dataset.filesystem)


def _read(handle: DeltaTable, spec: TableSpec, columns: Sequence[str] | None, filter: ds.Expression | None) -> pa.Table:
    try:
        names = list(columns) if columns is not None else spec.schema.names
        schema = pa.schema([spec.schema.field(name) for name in names])
        dataset = dataset_of(handle)
        lacking = [spec.schema.field(name) for name in spec.schema.names if name not in dataset.schema.names]
        if lacking:  # written by an older nightshift
            dataset = dataset.replace_schema(pa.schema([*dataset.schema, *lacking]))
        return dataset.to_table(columns=names, filter=filter).cast(schema)
    except (DeltaError, OSError, pa.ArrowInvalid) as problem:
        raise LakeError(f"table {spec.name} cannot be read: {_first_line(problem)}", table=spec.name) from problem


def _first_line(problem: BaseException) -> str:
    if "No space left on device" in str(problem):  # whatever library met it, and whatever it was copying then
        return "the disk is full; make room and run the same command again, nothing that was committed is lost"
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__


def local_path(lake: Lake, name: str) -> Path | None:
    """Folder of a table in a local lake, None on an object store."""
    return Path(lake.uri(name)) if lake.is_local else None
