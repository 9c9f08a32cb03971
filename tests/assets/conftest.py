"""A workspace in small on the toy model: a real harness, server, trainer and registry, one night of production log."""

from __future__ import annotations

import datetime
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.home import instance_of
from assets.metadata import REPORT
from assets.night import main
from pipelines import chain, harness
from pipelines.doors.engine import hold
from pipelines.errors import NightFailedError
from pipelines.ingest import ingest
from pipelines.nights import run_night
from pipelines.schemas import CHECKPOINTS
from pipelines.workspace import Workspace
from tests.assets.planted import NIGHT, PLANTED, planted_lines
from tests.conftest import make_workspace
from tests.landing.lines import item, write_lines

NUM_TASKS, ATTEMPTS = 4, 4

CONFIG = """
[lake]
first_day = 2026-01-05

[[sources]]
path = "logs"
format = "recorder"

[policy]
name = "toy"
base_model = "{model}"

[harness]
name = "toy_desk"
entry = "harness.py:rollout"

[groups]
size = 4
truncated = "scored"

[[rewards.verifiers]]
name = "bytes"
kind = "python"
entry = "verifier.py:verify"

[judge]
groups_per_night = 0

[evaluation]
held_out = "held_out.jsonl"
audit = "audit.jsonl"
held_out_share = 0.0
attempts = 1
min_tasks = 10

[training]
learning_rate = 1e-3
lora_rank = 4
lora_alpha = 8
"""

HARNESS = """
async def rollout(task, client):
    await client.chat([{"role": "user", "content": task["question"]}], max_tokens=6)
"""

VERIFIER = """
def verify(task_id, turns):
    answer = [turn for turn in turns if turn["sampled"]][-1]["content"] or ""
    return sum(answer.encode()) % 5 / 4
"""


def write_tasks(path: Path, prefix: str, number: int) -> Path:
    tasks = [{"task_id": f"{prefix}-{index}", "question": f"{prefix} question {index}"} for index in range(number)]
    path.write_text("".join(json.dumps(task) + "\n" for task in tasks), encoding="utf-8")
    return path


def toy_workspace(folder: Path, model: Path, *, more: str = "") -> Workspace:
    """The workspace, without a log yet."""
    folder.mkdir(parents=True)
    (folder / "harness.py").write_text(HARNESS, encoding="utf-8")
    (folder / "verifier.py").write_text(VERIFIER, encoding="utf-8")
    write_tasks(folder / "held_out.jsonl", "held", 12)
    write_tasks(folder / "audit.jsonl", "audit", 4)
    return make_workspace(folder, CONFIG.format(model=model) + more)


def serve_night(workspace: Workspace, night: str = NIGHT, *, seed: int = 0) -> Path:
    """One night of production: the harness answers new tasks with the champion and writes its log."""
    log = workspace.folder / "logs" / f"production-{night}.jsonl"
    tasks = write_tasks(workspace.folder / f"tasks-{night}.jsonl", night, NUM_TASKS)
    start = datetime.datetime.fromisoformat(f"{night}T09:00:00+00:00")
    with hold(workspace) as server:
        policy = chain.champion(workspace)
        harness.run(
            workspace,
            harness.read_tasks(tasks),
            purpose="production",
            policy_version=policy.policy_version,
            attempts=ATTEMPTS,
            log=log,
            url=server.url,
            model=server.model_for(policy),
            seed=seed,
            clock=lambda: start,
        )
    return log


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, toy_model: Path) -> Iterator[Workspace]:
    """A workspace whose night NIGHT has been served and not yet been run; copy it to change it."""
    workspace = toy_workspace(tmp_path_factory.mktemp("served") / "workspace", toy_model)
    serve_night(workspace)
    yield workspace


@pytest.fixture(scope="session")
def night(served: Workspace, tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, dict[str, Any]]:
    """A workspace whose night has been run once, and that run's outcome; tests may ask it and run the same night again."""
    workspace = copied(served, tmp_path_factory.mktemp("night") / "workspace")
    return workspace, run_night(workspace, NIGHT)


def copied(workspace: Workspace, folder: Path) -> Workspace:
    """The same workspace in another folder, without what Dagster and MLflow know of it."""
    shutil.copytree(workspace.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(".dagster", "mlflow.db"))
    return Workspace.open(folder)


def night_here(workspace: Workspace, night: str = NIGHT, *, again: bool = False) -> dict[str, Any]:
    """The outcome of a night, failed or not, by its program in this process: a program of its own imports for seconds."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        result = Path(folder) / "result.json"
        arguments = ["--workspace", str(workspace.folder), "--night", night, "--result", str(result)]
        patch.setattr("sys.argv", ["assets.night", *arguments, *(["--again"] if again else [])])
        with pytest.raises(SystemExit) as ended:
            main()
        outcome = json.loads(result.read_text(encoding="utf-8"))
    assert ended.value.code == (0 if outcome["success"] else 1)
    return outcome


@dataclass(frozen=True)
class FailedOnce:
    """A workspace with planted secrets whose night failed in its training and was then run again."""

    workspace: Workspace
    ingested: dict[str, Any]
    landed: dict[str, Any]
    """Report of the failed night's landing, as Dagster keeps it."""
    problem: NightFailedError
    num_checkpoints: int
    """After the failed night."""
    outcome: dict[str, Any]
    """Of the night that worked."""


@pytest.fixture(scope="session")
def failed_once(served: Workspace, tmp_path_factory: pytest.TempPathFactory) -> FailedOnce:
    folder = tmp_path_factory.mktemp("failed")
    workspace = copied(served, folder / "workspace")
    write_lines(workspace.folder / "logs" / f"{PLANTED['file name']}.jsonl", planted_lines())
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "results.json").write_text(json.dumps([item(1, info={"note": PLANTED["another format"]})]), encoding="utf-8")
    (elsewhere / "note.txt").write_text(f"token {PLANTED['unknown file']}", encoding="utf-8")
    ingested = ingest(workspace, [elsewhere])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTSHIFT_TRAINING__LEARNING_RATE", "1e38")  # diverges at the second step at the latest
        patch.setenv("NIGHTSHIFT_TRAINING__EPOCHS", "8")
        with pytest.raises(NightFailedError) as caught:
            run_night(workspace, NIGHT)
    with instance_of(workspace.folder) as instance:
        (event,) = instance.fetch_materializations(dg.AssetKey(["landing", "records"]), limit=1).records
        assert event.asset_materialization is not None
        landed: Any = event.asset_materialization.metadata[REPORT].value
    num_checkpoints = workspace.lake.num_rows(CHECKPOINTS.name)
    return FailedOnce(workspace, ingested, landed, caught.value, num_checkpoints, run_night(workspace, NIGHT))
