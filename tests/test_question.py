"""Questions of `nightshift sql`: they read the lake, and neither write nor reach anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import LakeError
from pipelines.landing.land import land
from pipelines.workspace import KEYS, Workspace
from tests.landing.lines import call, write_lines


def test_a_question_reads_the_tables_that_it_names(workspace: Workspace, tmp_path: Path) -> None:
    land(workspace, [write_lines(tmp_path / "log.jsonl", [call(1), call(2)])])
    ask = workspace.queries.ask
    sql = "WITH few AS (SELECT * FROM landing.records) SELECT count(*) AS num_records FROM few -- landing.quarantine"
    assert ask(sql, fenced=True).to_pylist() == [{"num_records": 2}]
    assert ask("SELECT count(*) AS n FROM groups.groups", fenced=True).to_pylist() == [{"n": 0}]


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELECT 1; SELECT 2",
        "CREATE TABLE kept AS SELECT 1",
        "COPY (SELECT 1) TO '{folder}/written.csv'",
        "SELECT 1; COPY (SELECT 1) TO '{folder}/written.csv'",
        "COPY landing.records TO '{folder}/written.parquet'",
        "ATTACH '{folder}/written.db' AS other",
        "INSTALL httpfs",
        "SET threads = 1",
        "SELECT * FROM read_text('{folder}/{keys}/identity')",
        "SELECT * FROM '{folder}/tasks.csv'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM landing.records, read_text('{folder}/{keys}/identity')",
        "SELECT * FROM secret_rows",
    ],
)
def test_a_question_writes_nothing_and_reads_nothing_else(workspace: Workspace, tmp_path: Path, sql: str) -> None:
    land(workspace, [write_lines(tmp_path / "log.jsonl", [call(1)])])
    (workspace.folder / "tasks.csv").write_text("a\n1\n", encoding="utf-8")
    before = {path for path in workspace.folder.rglob("*") if "lake" not in path.parts}
    secret_rows = workspace.lake.read("landing/records")  # the engine would find a variable by its name
    with pytest.raises(LakeError) as caught:
        workspace.queries.ask(sql.format(folder=workspace.folder, keys=KEYS), fenced=True)
    assert "\n" not in str(caught.value)
    assert {path for path in workspace.folder.rglob("*") if "lake" not in path.parts} == before
    assert secret_rows.num_rows == 1


def test_the_tables_are_listed_with_their_rows(workspace: Workspace, tmp_path: Path) -> None:
    land(workspace, [write_lines(tmp_path / "log.jsonl", [call(1), call(2)])])
    for question in ("show tables", " SHOW ALL TABLES; "):
        listed = {row["table"]: row["num_rows"] for row in workspace.queries.answer(question)}
        assert (listed["landing.records"], listed["groups.groups"]) == (2, 0)
    assert {"n"} == {key for row in workspace.queries.answer("SELECT count(*) AS n FROM landing.records") for key in row}


@pytest.mark.parametrize("name", ["records", "landing.record", "nowhere.nothing"])
def test_a_table_that_is_not_there_is_answered_with_those_that_are(workspace: Workspace, name: str) -> None:
    with pytest.raises(LakeError, match=rf"there is no table {name}; the tables are landing.records, .*promotion.decisions$"):
        workspace.queries.answer(f"SELECT * FROM {name}")
