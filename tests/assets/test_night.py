"""Whole nights through Dagster, on the toy model: from the log to a decision, again, killed, without a log, failing."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.definitions import build_definitions
from assets.home import instance_of
from assets.rewards import RESCORED
from pipelines import chain, lineage
from pipelines.invariants import ALL
from pipelines.nights import run_night
from pipelines.workspace import Workspace
from tests.assets.conftest import ATTEMPTS, NUM_TASKS, FailedOnce, copied, night_here, toy_workspace
from tests.assets.planted import NIGHT

ROOT = Path(__file__).resolve().parents[2]


def test_a_night_goes_from_the_log_to_a_decision(night: tuple[Workspace, dict[str, Any]]) -> None:
    workspace, outcome = night
    reports = outcome["reports"]
    assert reports["landing/records"]["records"] == NUM_TASKS * ATTEMPTS
    assert reports["groups/groups"]["groups"] == NUM_TASKS
    assert reports["batches/batches"]["lanes"]["grpo"] > 0
    assert reports["training/run"]["metrics"]["loss"] is not None
    assert reports["checkpoints/checkpoint"]["policy_version"] == "toy@1"
    assert reports["evaluation/results"]["num_tasks"] == 12
    assert reports["promotion/decision"]["decision"] in {"promote", "hold"}
    for ask in ALL:
        finding = ask(workspace)
        assert finding.broken == [], finding


def test_the_same_night_again_gives_the_same_and_trains_nothing(night: tuple[Workspace, dict[str, Any]]) -> None:
    workspace, outcome = night
    again = night_here(workspace)["reports"]
    first = outcome["reports"]
    assert again["training/run"]["reused"] and again["checkpoints/checkpoint"]["reused"] and again["promotion/decision"]["reused"]
    for asset, field in (
        ("training/run", "run_id"),
        ("checkpoints/checkpoint", "checkpoint_id"),
        ("promotion/decision", "number"),
        ("promotion/decision", "decision"),
    ):
        assert again[asset][field] == first[asset][field]
    assert len(list(workspace.runs.glob("run_*"))) == 1


def test_groups_frozen_again_train_once_more_and_are_marked(night: tuple[Workspace, dict[str, Any]], tmp_path: Path) -> None:
    workspace = copied(night[0], tmp_path / "workspace")
    # with its registry: a registry that forgot the first version would give its number away again
    shutil.copyfile(night[0].folder / "mlflow.db", workspace.folder / "mlflow.db")
    reports = night_here(workspace, again=True)["reports"]
    assert reports["checkpoints/checkpoint"]["policy_version"] == "toy@2"
    first = night[1]["reports"]["training/run"]
    assert reports["training/run"]["batch_ids"] != first["batch_ids"] and not reports["training/run"]["reused"]
    assert not reports["checkpoints/checkpoint"]["reused"]
    for ask in ALL:
        assert ask(workspace).broken == []
    (workspace.folder / "harness.py").write_text("def (", encoding="utf-8")  # a Python error, told as nightshift's own
    shutil.rmtree(workspace.folder / "lake" / "evaluation")
    failed = night_here(workspace)["failed"]
    assert failed["step"] == "evaluation/results" and failed["stack"] is None
    assert re.fullmatch(r"harness .* cannot be loaded: SyntaxError.*", failed["message"])


def test_a_full_disk_and_a_damaged_dagster_store_are_one_line(
    served: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = copied(served, tmp_path / "workspace")

    def refused() -> str:
        failed = night_here(workspace)["failed"]
        assert failed["stack"] is None and "\n" not in failed["message"]
        return failed["message"]

    with monkeypatch.context() as full:
        full.setattr("assets.night.MIN_FREE", 1 << 60)
        assert "is full" in refused() and not (workspace.folder / ".dagster").exists()

    def broken(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as full:
        full.setattr("assets.night.instance_of", broken)
        assert "make room and run the same command again" in refused()
    monkeypatch.setattr("assets.night.instance_of", lambda _: broken_store())
    assert "move it away" in refused()


def broken_store() -> None:
    raise sqlite3.DatabaseError("file is not a database")


def test_lineage_reaches_every_line_and_needs_neither_dagster_nor_mlflow(
    night: tuple[Workspace, dict[str, Any]], tmp_path: Path
) -> None:
    run, outcome = night
    before = lineage.backward(run, "toy@1")
    workspace = copied(run, tmp_path / "workspace")  # without .dagster and mlflow.db
    assert not (workspace.folder / ".dagster").exists()
    assert lineage.backward(workspace, "toy@1") == before
    lines = {(source["file"], source["line"]) for source in before["sources"]}
    assert lines and {file for file, _ in lines} == {f"logs/production-{NIGHT}.jsonl"}
    for file, line in lines:
        entry = json.loads((workspace.folder / file).read_text().splitlines()[line - 1])
        assert entry["purpose"] == "production"
        assert "toy@1" in {found["policy_version"] for found in lineage.ask(workspace, f"{file}:{line}")["checkpoints"]}
    assert len(lines) == outcome["reports"]["batches/batches"]["trajectories"]


# one step here; every stage's own tests kill it at each of its steps, and the drill kills nights at all of these
KILLED_AT = "batches/consumed:after_commit"
MORE_KILLS = [
    "landing/records:after_commit",
    "groups/groups:after_commit",
    "rewards/rewards:after_commit",
    "checkpoints/checkpoints:before_commit",
    "evaluation/results:after_commit",
    "promotion/decisions:before_commit",
]


@pytest.mark.parametrize("step", [KILLED_AT, *(pytest.param(step, marks=pytest.mark.drill) for step in MORE_KILLS)])
def test_a_killed_night_is_finished_by_the_same_command(
    served: Workspace, night: tuple[Workspace, dict[str, Any]], tmp_path: Path, step: str
) -> None:
    workspace = copied(served, tmp_path / "workspace")
    command = [sys.executable, "-m", "assets.night", "--workspace", str(workspace.folder), "--night", NIGHT]
    killed = subprocess.run(
        [*command, "--result", str(tmp_path / "result.json")],
        cwd=ROOT,
        env={**os.environ, "NIGHTSHIFT_KILL_AT": step},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -9
    outcome = run_night(workspace, NIGHT)
    reports, first = outcome["reports"], night[1]["reports"]
    assert reports["checkpoints/checkpoint"]["checkpoint_id"] == first["checkpoints/checkpoint"]["checkpoint_id"]
    assert reports["promotion/decision"]["decision"] == first["promotion/decision"]["decision"]
    assert reports["promotion/decision"]["number"] == 1
    for ask in ALL:
        assert ask(workspace).broken == []


def test_a_night_with_nothing_to_train_holds_and_says_why(tmp_path: Path, toy_model: Path) -> None:
    workspace = toy_workspace(tmp_path / "workspace", toy_model)
    (workspace.folder / "logs").mkdir()
    outcome = night_here(workspace)
    assert outcome["reports"]["training/run"]["why_nothing"]
    decision = outcome["reports"]["promotion/decision"]
    assert (decision["decision"], decision["reason"]) == ("hold", "nothing_trained")
    assert chain.champion(workspace).checkpoint_id == chain.BASE


def test_a_trainer_that_dies_fails_the_night_in_one_line_and_the_next_try_works(failed_once: FailedOnce) -> None:
    assert "training/run" in str(failed_once.problem) and "\n" not in str(failed_once.problem)
    assert failed_once.problem.stack is None
    assert failed_once.num_checkpoints == 0
    assert failed_once.outcome["reports"]["checkpoints/checkpoint"]["policy_version"] == "toy@1"


def test_a_day_without_a_partition_is_refused(workspace: Workspace) -> None:
    for day in ("2025-12-31", "2199-01-01"):
        assert "first_day" in night_here(workspace, day)["failed"]["message"]


def test_a_backfill_of_another_rubric_adds_rows_and_trains_nothing(
    night: tuple[Workspace, dict[str, Any]], tmp_path: Path
) -> None:
    workspace = copied(night[0], tmp_path / "workspace")
    (workspace.folder / "rubrics" / "strict.md").write_text("Only the shortest answer wins.\n", encoding="utf-8")
    before = {row["reward_key"] for row in workspace.lake.read("rewards/rewards").to_pylist()}
    job = build_definitions(workspace.folder).resolve_job_def("rescore")
    cell = dg.MultiPartitionKey({"day": NIGHT, "rubric": "strict"})
    with instance_of(workspace.folder) as instance:
        instance.add_dynamic_partitions("rubrics", ["strict"])
        assert job.execute_in_process(partition_key=cell, instance=instance).success
    rows = workspace.lake.read("rewards/rewards").to_pylist()
    assert before <= {row["reward_key"] for row in rows}
    assert {row["rubric_hash"] for row in rows} == {workspace.rubric()[1], workspace.rubric("strict")[1]}
    assert workspace.lake.version("batches/consumed") == night[0].lake.version("batches/consumed")


def test_a_night_reports_its_own_cell_of_day_and_rubric(night: tuple[Workspace, dict[str, Any]]) -> None:
    with instance_of(night[0].folder) as instance:
        assert instance.get_materialized_partitions(RESCORED) == {f"{NIGHT}|default"}
