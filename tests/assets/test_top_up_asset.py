"""A night that begins with its top-ups, through Dagster: they land, form groups with an anchor, and never stop what comes after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.definitions import build_definitions
from assets.home import instance_of
from assets.metadata import REPORT
from pipelines.schemas import GROUPS, TRAJECTORIES
from pipelines.workspace import Workspace
from tests.policy_double import PolicyDouble, policy_double
from tests.top_up.conftest import HARNESS, LAST_NIGHT, NIGHT, other, taken_in

BEGINNING = [["landing", "top_up"], ["landing", "records"], ["trajectories", "trajectories"], ["groups", "groups"]]


@pytest.fixture(scope="module")
def server() -> Iterator[PolicyDouble]:
    with policy_double() as double:
        yield double


@pytest.fixture
def workspace(tmp_path: Path, server: PolicyDouble) -> Workspace:
    from tests.conftest import make_workspace

    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "harness.py").write_text(HARNESS, encoding="utf-8")
    server.dies_after = None
    opened = make_workspace(
        folder,
        f'[policy]\nname = "nightshift-agent"\nbase_url = "{server.url}"\n[harness]\nname = "sums"\nentry = "harness.py:rollout"\n'
        "[evaluation]\nheld_out_share = 0.0\n[groups]\ntop_up = 8\n",
    )
    taken_in(opened, [other(task, task=task, outcome=1.0) for task in ("a", "b", "c")], night=LAST_NIGHT)
    return opened


def begun(workspace: Workspace) -> tuple[dict[str, Any], list[str], dg.ExecuteInProcessResult]:
    """Reports of the first stages of the night, what was logged as a warning, and how it went."""
    job = build_definitions(workspace.folder).resolve_job_def("nightly")
    with instance_of(workspace.folder) as instance:
        selected = [dg.AssetKey(key) for key in BEGINNING]
        result = job.execute_in_process(partition_key=NIGHT, instance=instance, asset_selection=selected, raise_on_error=False)
        logged = instance.all_logs(result.run_id)
    events = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    reports: dict[str, Any] = {event.asset_key.to_user_string(): event.metadata[REPORT].value for event in events}
    return reports, [entry.user_message for entry in logged if entry.level == 30], result


def test_a_night_begins_with_its_top_ups_and_groups_them(workspace: Workspace) -> None:
    reports, warnings, result = begun(workspace)
    assert result.success and warnings == []
    topped_up = reports["landing/top_up"]
    assert (topped_up["rollouts"], topped_up["tasks"], topped_up["stopped_by"]) == (8, 2, "rollouts")
    assert next(iter(reports)) == "landing/top_up"
    assert reports["landing/records"]["records"] == 8
    assert (reports["groups/groups"]["groups"], reports["groups/groups"]["members"], reports["groups/groups"]["anchors"]) == (
        2,
        8,
        2,
    )
    purposes = {row["trajectory_id"]: row["purpose"] for row in workspace.lake.read(TRAJECTORIES.name).to_pylist()}
    rows = workspace.lake.read(GROUPS.name).to_pylist()
    assert {(row["role"], purposes[row["trajectory_id"]]) for row in rows} == {("member", "top_up"), ("anchor", "production")}
    again, _, _ = begun(workspace)
    assert (again["landing/top_up"]["rollouts"], again["landing/top_up"]["found"]) == (0, 8)
    assert again["landing/records"]["records"] == 0 and again["groups/groups"]["groups"] == 0


def test_a_policy_server_that_is_gone_is_a_warning_and_the_night_goes_on(workspace: Workspace, server: PolicyDouble) -> None:
    server.dies_after = 0
    reports, warnings, result = begun(workspace)
    assert result.success and reports["landing/top_up"]["stopped_by"] == "failed"
    assert "does not answer" in reports["landing/top_up"]["why_nothing"]
    (warning,) = [said for said in warnings if "top-ups" in said]
    assert warning.startswith("the night goes on without the rest of its top-ups: the policy server at")
    assert reports["groups/groups"]["why_nothing"] is not None  # what stands behind it ran
