"""A lake with a chain of checkpoints behind it, as the stages leave it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.groups import seal
from pipelines.schemas import CHECKPOINTS, CONSUMED, DECISIONS, GROUPS, LANES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import NOON, call, deliver

NIGHT = "2026-11-20"
POLICY = "nightshift-agent"


def freeze(workspace: Workspace, batch_id: str, group_id: str, trajectories: Sequence[str]) -> None:
    """A batch as stage 5 leaves it: rows, consumption, lanes."""
    folder = workspace.batches / batch_id
    folder.mkdir(parents=True)
    members = [trajectory_id for trajectory_id in trajectories for _ in range(2)]  # one row per turn
    pq.write_table(pa.table({"group_id": [group_id] * len(members), "trajectory_id": members}), folder / "rows.parquet")
    consumed = {"group_id": group_id, "rubric_hash": "r", "batch_id": batch_id, "lane": "grpo", "again": False, "night": NIGHT}
    workspace.lake.append(CONSUMED.name, pa.Table.from_pylist([consumed], schema=CONSUMED.schema))
    lanes = [
        {"trajectory_id": trajectory_id, "night": NIGHT, "lane": "grpo", "group_id": group_id, "batch_id": batch_id}
        for trajectory_id in trajectories
    ]
    workspace.lake.append(LANES.name, pa.Table.from_pylist(lanes, schema=LANES.schema))


def register(workspace: Workspace, version: int, parent: int | None, batches: Sequence[str]) -> None:
    row = {
        "checkpoint_id": f"ckp_{version}",
        "policy": POLICY,
        "version": version,
        "parent": None if parent is None else f"ckp_{parent}",
        "run_id": f"run_{version}",
        "batches": list(batches),
        "night": NIGHT,
        "path": f"runs/{version}",
    }
    workspace.lake.append(CHECKPOINTS.name, pa.Table.from_pylist([row], schema=CHECKPOINTS.schema))


@pytest.fixture
def story(tmp_path: Path) -> Workspace:
    """Tasks a and b, three attempts each (lines 1-3 and 4-6); base -> 1 (learned a) -> 2 (learned b, champion), base -> 3."""
    workspace = make_workspace(tmp_path / "w", "[evaluation]\nheld_out_share = 0.0\n")
    deliver(workspace, [call(f"{task}{number}", task=task, outcome=float(number % 2)) for task in "ab" for number in range(3)])
    build(workspace)
    seal(workspace, NIGHT, judged=True)
    for version, (task, parent) in enumerate((("a", None), ("b", 1)), start=1):
        freeze(workspace, f"bat_{version}", *group_of(workspace, task))
        register(workspace, version, parent, [f"bat_{version}"])
    register(workspace, 3, None, [])
    decision = {"number": 1, "policy": POLICY, "decision": "promote", "champion": "ckp_2", "decided_at": NOON}
    workspace.lake.append(DECISIONS.name, pa.Table.from_pylist([decision], schema=DECISIONS.schema))
    return workspace


def group_of(workspace: Workspace, task: str) -> tuple[str, list[str]]:
    key = workspace.identity.task_key("sums", task)
    rows = [row for row in workspace.lake.read(GROUPS.name).to_pylist() if row["task_key"] == key]
    return rows[0]["group_id"], sorted(row["trajectory_id"] for row in rows)


def lines(first: int, last: int) -> list[dict]:
    return [{"file": "logs/calls.jsonl", "line": line} for line in range(first, last + 1)]


@pytest.fixture
def lake(story: Workspace) -> Workspace:
    """The same, for tests of the module of that name."""
    return story
