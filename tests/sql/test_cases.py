"""Every query of sql/: one SELECT with a total order, and cases of rows in and rows out.

A case is a folder `tests/sql/<stage>/<query>/<case>/` of YAML files: `<stage>.<table>.yaml` for a table of the lake,
`<name>.yaml` for one that is handed in, `parameters.yaml`, and `expected.yaml`. Rows are lists of mappings; columns of a
lake table that a case leaves out are null. A handed-in table without rows names its columns: `{columns: {name: type}}`.
`expected` is held against the columns that it names, in the order of the rows.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml

from pipelines.doors.lake import Lake
from pipelines.doors.queries import SQL, Queries, text_of
from pipelines.schemas import TABLES

HERE = Path(__file__).resolve().parent
QUERIES = sorted(str(path.relative_to(SQL).with_suffix("")) for path in SQL.glob("*/*.sql"))
CASES = sorted(str(path.parent.relative_to(HERE)) for path in HERE.glob("*/*/*/expected.yaml"))
WITH_CASES = {"trajectories", "groups", "lineage"}
"""Stages whose every query must have a case."""


@pytest.mark.parametrize("name", QUERIES)
def test_is_one_select_with_an_order(name: str) -> None:
    statements = duckdb.extract_statements(text_of(name))
    assert [statement.type for statement in statements] == [duckdb.StatementType.SELECT]
    with duckdb.connect(":memory:") as connection:
        ((serialised,),) = connection.execute("SELECT json_serialize_sql(?)", [text_of(name)]).fetchall()
    tree = json.loads(serialised)
    kinds = [modifier["type"] for modifier in tree["statements"][0]["node"]["modifiers"]]
    assert "ORDER_MODIFIER" in kinds, f"sql/{name}.sql has no ORDER BY of its own"


@pytest.mark.parametrize("name", [name for name in QUERIES if name.split("/")[0] in WITH_CASES])
def test_has_a_case(name: str) -> None:
    assert any(case.rsplit("/", 1)[0] == name for case in CASES), f"add tests/sql/{name}/<case>/expected.yaml"


@pytest.mark.parametrize("case", CASES)
def test_rows_in_rows_out(case: str, tmp_path: Path) -> None:
    lake, handed_in = Lake(str(tmp_path / "lake")), {}
    for file in sorted((HERE / case).glob("*.yaml")):
        if file.stem in {"expected", "parameters"}:
            continue
        stage, _, table = file.stem.partition(".")
        if table:
            spec = TABLES[f"{stage}/{table}"]
            rows = read(file)
            unknown = {column for row in rows for column in row} - set(spec.schema.names)
            assert not unknown, f"{file.name}: {spec.name} has no column {unknown}"
            lake.append(spec.name, pa.Table.from_pylist(rows, schema=spec.schema))
        else:
            handed_in[file.stem] = handed(read(file))
    parameters = HERE / case / "parameters.yaml"
    name = case.rsplit("/", 1)[0]
    found = Queries(lake).run(name, read(parameters) if parameters.exists() else {}, tables=handed_in).to_pylist()
    expected = read(HERE / case / "expected.yaml")
    columns = list(expected[0]) if expected else []
    assert [{column: row[column] for column in columns} for row in found] == expected if expected else found == []


def read(file: Path) -> Any:
    return plain(yaml.safe_load(file.read_text(encoding="utf-8")) or [])


def plain(value: Any) -> Any:
    """YAML reads 2026-11-20 as a date; the lake keeps days as text, and moments as moments."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return value.isoformat() if type(value) is datetime.date else value


def handed(rows: Any) -> pa.Table:
    if isinstance(rows, dict):
        return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in rows["columns"].items()]).empty_table()
    return pa.Table.from_pylist(rows)
