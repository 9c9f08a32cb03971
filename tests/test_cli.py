"""The command line as a program: one line for what is wrong, pure JSON for what was asked, exit codes that tell them apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines import cli
from pipelines.workspace import Workspace


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["nightshift", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code if isinstance(ended.value.code, int) else 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nonsense"], "No such command"),
        (["promote", "abc"], "`nightshift promote --help`"),
        (["lineage"], "Missing argument"),
        (["doctor", "--nonsense"], "No such option"),
        (["lanes", "--night", "yesterday"], "YYYY-MM-DD"),
        (["night", "--date", "2026-13-01"], "YYYY-MM-DD"),
        (["lineage", "log.jsonl:" + "9" * 23], "nothing in this lake"),
        (["why", "log.jsonl:" + "9" * 23], "nothing in this lake"),
        (["sql", ""], "only one SELECT"),
        (["sql", "COPY (SELECT 1) TO 'x.csv'"], "only one SELECT"),
    ],
)
def test_what_is_wrong_is_one_line(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    monkeypatch.setenv(cli.WORKSPACE_VARIABLE, str(workspace.folder))
    assert run(monkeypatch, *arguments) in {1, 2}
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("nightshift: ") and told in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["checkpoints"],
        ["doctor"],
        ["doctor", "--digest"],
        ["formats"],
        ["groups", "wanted"],
        ["ingest"],
        ["lanes"],
        ["lineage", "nightshift-agent@champion"],
        ["quarantine"],
        ["sql", "SELECT 'nan'::DOUBLE AS no_number, [1.0, '-inf'::DOUBLE] AS several"],
    ],
)
def test_json_is_json_and_nothing_else(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    run(monkeypatch, *arguments, "--json", "--workspace", str(workspace.folder))
    said = capsys.readouterr()
    json.loads(said.out, parse_constant=refuse)
    assert said.err == ""


def test_sums_are_numbers(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine adds integers up as decimals."""
    question = "SELECT sum(n) AS whole, CAST(1.25 AS DECIMAL(9, 2)) AS part FROM (VALUES (1), (2)) AS t (n)"
    run(monkeypatch, "sql", question, "--json", "--workspace", str(workspace.folder))
    assert json.loads(capsys.readouterr().out) == [{"whole": 3, "part": 1.25}]


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("NIGHTSHIFT_SOURCES", "logs", "NIGHTSHIFT_SOURCES in the environment is no JSON"),
        ("NIGHTSHIFT_TRAINING__NOPE", "1", "NIGHTSHIFT_TRAINING__NOPE in the environment: training.nope: no such setting"),
        ("NIGHTSHIFT_SCHEDULE__TIMEZONE", "Mars/Crater", "'Mars/Crater' is no time zone"),
    ],
)
def test_a_setting_of_the_environment_is_refused_by_its_name(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    told: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert run(monkeypatch, "lanes", "--workspace", str(workspace.folder)) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and told in said.err


def test_an_unknown_setting_of_the_file_is_refused_by_its_name(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file: Path = workspace.folder / "nightshift.toml"
    file.write_text("[training]\nlearning_rte = 1\n", encoding="utf-8")
    assert run(monkeypatch, "lanes", "--workspace", str(workspace.folder)) == 2
    assert f"{file}: training.learning_rte: no such setting" in capsys.readouterr().err
