"""The door to the SQL engine: the only module that imports duckdb and the only one that opens files under sql/.

A query is one SELECT in `sql/<stage>/<name>.sql` with named parameters (`$night`) and a total order. It names tables
of the lake as `<stage>.<table>` (`groups.groups`) and tables handed in by their own name; a lake table that was never
written is empty. DuckDB reads the Parquet files of the pinned Delta version itself, which bypasses Delta's reader, so a
table whose protocol asks for more than plain files (deletion vectors, column mapping) is refused.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.doors.lake import Handle, Lake, conform, dataset_of
from pipelines.doors.parts import files_since, files_with
from pipelines.errors import LakeError
from pipelines.schemas import TABLES, TableSpec

SQL = Path(__file__).resolve().parents[2] / "sql"

_TABLE_NAME = re.compile(r"\b([a-z_]+)\.([a-z_]+)\b")
_COMMENT = re.compile(r"--[^\n]*")
_SHOW_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
_NO_TABLE = re.compile(r"Catalog Error: Table with name \"?([\w./]+)")
_PLAIN_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
"""Delta features under which a table still is the sum of its Parquet files."""


@dataclass(frozen=True)
class Kept:
    """Rows of a table that a query is to see: those whose `column` has one of the values, or none."""

    column: str
    values: frozenset[str]


@dataclass(frozen=True)
class Since:
    """Rows of a table that a query is to see: those in files that were added after a version of it, whether written then or copied
    beside one that was; all of them where that version cannot be read any more."""

    version: int


Only = Mapping[str, Kept | Since]
"""By table (`<stage>/<table>`)."""


_numbers = itertools.count(1)
_starting = threading.Lock()


@cache
def _engine(memory_limit: str, threads: int | None) -> duckdb.DuckDBPyConnection:
    """One engine of this process, so that a query does not pay for starting one (26 ms), and all share its memory limit."""
    engine = duckdb.connect(":memory:", config={"autoinstall_known_extensions": False, "memory_limit": memory_limit})
    engine.execute("SET enable_external_file_cache = false")  # a file that was damaged or mended in place is read as it is now
    if threads is not None:
        engine.execute(f"SET threads = {int(threads)}")
    return engine


@contextmanager
def _opened(memory_limit: str, threads: int | None, *, shared: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection whose views no other query sees. `shared`: on the engine of this process, else on one that may be locked down."""
    if not shared:
        connection = _engine.__wrapped__(memory_limit, threads)
        try:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
        finally:
            connection.close()
        return
    with _starting:
        connection = _engine(memory_limit, threads).cursor()
        own = f"query_{next(_numbers)}"
    try:
        connection.execute(f"SET TimeZone = 'UTC'; ATTACH ':memory:' AS {own}; USE {own}")
        yield connection
    finally:
        connection.execute(f"USE memory; DETACH {own}")
        connection.close()


@cache
def text_of(name: str) -> str:
    """The text of a query, `<stage>/<name>`."""
    return (SQL / f"{name}.sql").read_text(encoding="utf-8")


def tables_of(sql: str) -> list[str]:
    """Lake tables that a query names, `<stage>/<table>`, sorted."""
    plain = _COMMENT.sub("", sql)
    names = {f"{stage}/{table}" for stage, table in _TABLE_NAME.findall(plain)}
    return sorted(names & TABLES.keys())


def asked_by() -> list[str]:
    """Names under which a question finds the tables of the lake, `<stage>.<table>`."""
    return [name.replace("/", ".") for name in TABLES if "/" in name]


class Queries:
    """Runs the queries of sql/ over one lake."""

    def __init__(self, lake: Lake, *, memory_limit: str = "4GB", threads: int | None = None) -> None:
        self.lake = lake
        self.memory_limit = memory_limit
        self.threads = threads

    def run(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        tables: Mapping[str, pa.Table] | None = None,
        pinned: Mapping[str, Handle] | None = None,
        only: Only | None = None,
    ) -> pa.Table:
        """Rows of `sql/<name>.sql`; `tables` are handed in, `pinned` are versions of lake tables to read instead of the newest.

        `only`: the query sees no other rows of these tables, and no file that holds none of them is opened.
        """
        return self.ask(text_of(name), parameters, tables=tables, pinned=pinned, only=only, label=f"sql/{name}.sql")

    def into(self, target: str, name: str, parameters: Mapping[str, Any] | None = None, **sources: Any) -> pa.Table:
        """Like `run`, in the columns and types of a lake table."""
        return conform(self.run(name, parameters, **sources), TABLES[target])

    def answer(self, sql: str) -> list[dict[str, Any]]:
        """Rows of somebody's own question, fenced; for `show tables` the tables with their rows counted."""
        if _SHOW_TABLES.fullmatch(sql):
            return [{"table": name, "num_rows": self.lake.num_rows(name.replace(".", "/"))} for name in asked_by()]
        return self.ask(sql, fenced=True).to_pylist()

    def ask(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        tables: Mapping[str, pa.Table] | None = None,
        pinned: Mapping[str, Handle] | None = None,
        only: Only | None = None,
        label: str = "question",
        fenced: bool = False,
    ) -> pa.Table:
        """Rows of a SELECT given as text. LakeError carries the engine's first line.

        `fenced`: the text is somebody's own, so it may be one SELECT only, and reaches the files of the tables that it
        names and nothing else: no other file, no network, no variable of this process, no setting.
        """
        try:
            with _opened(self.memory_limit, self.threads, shared=not fenced) as connection:
                for table in tables_of(sql):
                    handle = (pinned or {}).get(table) or self.lake.handle(table)
                    self._register(connection, table, handle, (only or {}).get(table))
                for table, rows in (tables or {}).items():
                    connection.register(table, rows)
                if fenced:
                    self._fence(connection, sql, label)
                used = {key: value for key, value in (parameters or {}).items() if re.search(rf"\${key}\b", sql)}
                return connection.sql(sql, params=used).to_arrow_table()
        except duckdb.Error as problem:
            raise LakeError(f"{label}: {_said(str(problem).strip().splitlines()[0])}") from problem

    def _fence(self, connection: duckdb.DuckDBPyConnection, sql: str, label: str) -> None:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise LakeError(f"{label}: only one SELECT is answered; the lake is read here and never written")
        files: list[str] = []
        if self.lake.is_local:
            handles = [(name, self.lake.handle(name)) for name in tables_of(sql)]
            files = [file for name, handle in handles if handle is not None for file in _plain_files(name, handle)]
        listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
        connection.execute("SET python_enable_replacements = false")
        connection.execute(f"SET allowed_paths = [{listed}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")

    def _register(
        self, connection: duckdb.DuckDBPyConnection, name: str, handle: Handle | None, only: Kept | Since | None = None
    ) -> None:
        spec = TABLES[name]
        stage, table = name.split("/")
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {stage}")
        view = f"{stage}__{table}"
        files = [] if handle is None else self._files(name, handle, only)
        if not files:
            connection.register(view, spec.schema.empty_table())
            connection.execute(f"CREATE VIEW {stage}.{table} AS SELECT * FROM {view}")
        elif self.lake.is_local:
            try:
                held = [_columns_of(file) for file in files]
            except (OSError, pa.ArrowInvalid) as problem:
                raise LakeError(f"table {name} cannot be read: {str(problem).strip().splitlines()[0]}", table=name) from problem
            every = frozenset.union(*held)
            listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
            options = "union_by_name = true" if any(columns != every for columns in held) else "union_by_name = false"
            if spec.partition:
                every |= {spec.partition}
                options += f", hive_partitioning = true, hive_types = {{'{spec.partition}': VARCHAR}}"
            self._view(connection, spec, stage, table, f"read_parquet([{listed}], {options})", every, only)
        else:
            assert handle is not None
            rows = dataset_of(handle, files if isinstance(only, Since) else None)
            connection.register(view, rows)
            self._view(connection, spec, stage, table, view, frozenset(rows.schema.names), only)

    def _files(self, name: str, handle: Handle, only: Kept | Since | None) -> list[str]:
        every = _plain_files(name, handle)
        if isinstance(only, Kept):
            return files_with(handle, only.column, only.values)
        if isinstance(only, Since) and (before := self.lake.at(name, only.version)) is not None:
            return files_since(before, handle)
        return every

    def _view(
        self,
        connection: duckdb.DuckDBPyConnection,
        spec: TableSpec,
        stage: str,
        table: str,
        rows: str,
        held: frozenset[str],
        only: Kept | Since | None,
    ) -> None:
        """All columns of the schema: those that an older nightshift did not write yet are null."""
        lacking = [field for field in spec.schema if field.name not in held]
        added = "".join(f', CAST(NULL AS {_sql_type(connection, field)}) AS "{field.name}"' for field in lacking)
        kept = ""
        if isinstance(only, Kept) and only.column in held:
            connection.register(f"{stage}__{table}__kept", pa.table({"value": pa.array(sorted(only.values), pa.string())}))
            kept = f' WHERE "{only.column}" IN (SELECT value FROM {stage}__{table}__kept) OR "{only.column}" IS NULL'
        connection.execute(f"CREATE VIEW {stage}.{table} AS SELECT *{added} FROM {rows}{kept}")


@lru_cache(maxsize=200_000)
def _columns_of(file: str) -> frozenset[str]:
    """Columns of a data file, which never change."""
    return frozenset(pq.read_schema(file).names)


def _said(line: str) -> str:
    """The engine's line; its guess about a table that is not there knows nothing of this lake."""
    found = _NO_TABLE.match(line)
    return line if found is None else f"there is no table {found.group(1)}; the tables are {', '.join(asked_by())}"


def _sql_type(connection: duckdb.DuckDBPyConnection, field: pa.Field) -> str:
    empty = pa.schema([field]).empty_table()
    connection.register("one_column", empty)
    (found,) = connection.execute("DESCRIBE SELECT * FROM one_column").fetchall()
    connection.unregister("one_column")
    return found[1]


def _plain_files(name: str, handle: Handle) -> list[str]:
    protocol = handle.protocol()
    features = {*(protocol.reader_features or []), *(protocol.writer_features or [])} - _PLAIN_FEATURES
    if protocol.min_reader_version > 1 and features:
        raise LakeError(
            f"table {name} uses {', '.join(sorted(features))}, which reading its files alone would get wrong; switch it off"
        )
    return handle.file_uris()
