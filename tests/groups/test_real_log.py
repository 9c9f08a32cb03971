"""A real log of another team's tool: tau-bench's airline results, from the file to the overview."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from pipelines.groups import overview, reach, seal, violations
from pipelines.landing.land import land
from pipelines.lineage import forward
from pipelines.schemas import GROUPS, RECORDS
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import rows_of


def write_json(path: Path, content: Any) -> Path:
    path.write_bytes(json.dumps(content).encode())
    return path


def groups_of(workspace: Workspace) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows_of(workspace, GROUPS.name):
        found.setdefault(row["group_id"], set()).add(row["trajectory_id"])
    return found


def test_tau_bench_airline(workspace: Workspace, shared_logs: Path, tmp_path: Path) -> None:
    file = shared_logs / "tau_bench" / "sierra_gpt-4o-airline.json"
    land(workspace, [file], day="2026-11-20")
    built = build(workspace)
    assert (built.trajectories, built.duplicates, built.faults) == (200, 0, 0)
    seal(workspace, "2026-11-20", judged=False)
    found = overview(workspace)
    assert (found.trajectories, found.groups, found.groups_unknown) == (200, 50, 0)
    assert (found.groups_mixed, found.groups_all_pass, found.groups_all_fail) == (26, 10, 14)
    assert set(found.eligible_for) == {"held_out", "sft"}
    assert set(found.reasons) == {"held_out_task", "unknown_model"}
    assert sum(found.eligible_for.values()) == sum(found.reasons.values()) == 200

    assert seal(workspace, "2026-11-20", judged=True).groups == 50
    assert overview(workspace) == found
    assert violations(workspace).num_rows == 0

    before = rows_of(workspace, GROUPS.name)
    land(workspace, [file], day="2026-11-21")
    assert build(workspace).why_nothing is not None
    assert seal(workspace, "2026-11-21", judged=True).groups == 0
    assert rows_of(workspace, GROUPS.name) == before

    # shuffled, in ten files, each delivered twice
    results = json.loads(file.read_bytes())
    random.Random(0).shuffle(results)
    for _ in range(2):
        for part in range(10):
            land(workspace, [write_json(tmp_path / f"part-{part}.json", results[part::10])], day="2026-11-21")
            assert build(workspace).trajectories == 0
    other = make_workspace(tmp_path / "other")
    for part in range(10):
        for _ in range(2):
            land(other, [tmp_path / f"part-{part}.json"], day="2026-11-20")
            build(other)
    seal(other, "2026-11-20", judged=False)
    seal(other, "2026-11-20", judged=True)
    assert groups_of(other) == groups_of(workspace)

    # ten late attempts change no sealed group
    late = [{**result, "trial": 100 + number, "reward": 1.0 - result["reward"]} for number, result in enumerate(results[:10])]
    for number, result in enumerate(late):
        result["traj"] = [*result["traj"][:-1], {**result["traj"][-1], "content": f"late {number}"}]
    land(workspace, [write_json(tmp_path / "late.json", late)], day="2026-11-21")
    assert build(workspace).trajectories == 10
    seal(workspace, "2026-11-21", judged=True)
    after = groups_of(workspace)
    assert {group_id: after[group_id] for group_id in groups_of(other)} == groups_of(other)
    assert (
        reach(workspace)["late"] + sum(len(members) for group_id, members in after.items() if group_id not in groups_of(other))
        == 10
    )

    landed = workspace.lake.read(RECORDS.name, columns=["source", "line"]).to_pylist()
    line = next(row["line"] for row in landed if row["source"].endswith(file.name))
    assert len(forward(workspace, str(file), line)["trajectories"]) == 1
