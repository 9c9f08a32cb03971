"""A real log of another team's tool: tau-bench's airline results, from the file to the overview."""

from __future__ import annotations

from pathlib import Path

from pipelines.groups import overview, seal, violations
from pipelines.landing.land import land
from pipelines.lineage import forward
from pipelines.schemas import GROUPS, RECORDS
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.deliver import rows_of


def test_tau_bench_airline(workspace: Workspace, shared_logs: Path) -> None:
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

    line = workspace.lake.read(RECORDS.name, columns=["line"]).column("line")[0].as_py()
    assert len(forward(workspace, str(file), line)["trajectories"]) == 1
