"""The asset graph as a snapshot: keys, dependencies, groups, descriptions, partitions, checks. Changed on purpose only."""

from __future__ import annotations

import json
import os
from pathlib import Path

import dagster as dg
import pytest

from assets.definitions import build_definitions
from assets.stages import STAGES
from pipelines.workspace import Workspace

SNAPSHOT = Path(__file__).with_name("graph.json")


@pytest.fixture
def definitions(workspace: Workspace) -> dg.Definitions:
    return build_definitions(workspace.folder)


def drawn(definitions: dg.Definitions) -> dict[str, dict[str, object]]:
    graph = definitions.resolve_asset_graph()
    found: dict[str, dict[str, object]] = {}
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        partitions = node.partitions_def
        found[key.to_user_string()] = {
            "group": node.group_name,
            "deps": sorted(parent.to_user_string() for parent in node.parent_keys),
            "description": node.description,
            "partitions": type(partitions).__name__ if partitions else None,
            "checks": sorted(check.name for check in node.check_keys),
        }
    return found


def test_the_graph_is_the_snapshot(definitions: dg.Definitions) -> None:
    found = drawn(definitions)
    if os.environ.get("NIGHTSHIFT_WRITE_SNAPSHOTS"):
        SNAPSHOT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert found == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def test_every_stage_is_a_group_and_every_asset_is_described(definitions: dg.Definitions) -> None:
    found = drawn(definitions)
    assert {entry["group"] for entry in found.values()} == set(STAGES)
    assert all(len(str(entry["description"])) > 40 for entry in found.values())


def test_the_nightly_job_holds_daily_and_unpartitioned_assets_only(definitions: dg.Definitions) -> None:
    job = definitions.resolve_job_def("nightly")
    keys = {key.to_user_string() for key in job.asset_layer.executable_asset_keys}
    assert "rewards/rescored" not in keys
    assert keys == drawn(definitions).keys() - {"rewards/rescored"}
    assert isinstance(job.partitions_def, dg.DailyPartitionsDefinition)


def test_the_rescore_job_never_trains(definitions: dg.Definitions) -> None:
    job = definitions.resolve_job_def("rescore")
    assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == {"rewards/rescored"}


def test_the_checks_block(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    checks = [graph.get_check_spec(key) for key in graph.asset_check_keys]
    assert {check.name for check in checks} == {
        "every_record_in_one_place",
        "one_task_one_context",
        "only_sampled_tokens_train",
        "held_out_stays_out",
        "near_held_out_stays_out",
        "trained_once",
    }
    assert all(check.blocking for check in checks)


@pytest.mark.parametrize(("enabled", "status"), [("true", "RUNNING"), ("false", "STOPPED")])
def test_one_setting_switches_schedule_and_sensor(tmp_path: Path, enabled: str, status: str) -> None:
    from tests.conftest import make_workspace

    opened = make_workspace(tmp_path / "w", f"[schedule]\nenabled = {enabled}\ncron = '15 3 * * *'\ntimezone = 'Europe/Berlin'\n")
    repository = build_definitions(opened.folder).get_repository_def()
    (schedule,) = repository.schedule_defs
    (sensor,) = repository.sensor_defs
    assert schedule.default_status.value == sensor.default_status.value == status
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("15 3 * * *", "Europe/Berlin")


def test_the_night_is_the_day_before_the_tick_in_the_workspaces_time_zone(tmp_path: Path) -> None:
    import datetime

    from tests.conftest import make_workspace

    opened = make_workspace(tmp_path / "w", "[schedule]\ntimezone = 'Asia/Tokyo'\n")
    repository = build_definitions(opened.folder).get_repository_def()
    tick = datetime.datetime(2026, 11, 20, 17, 0, tzinfo=datetime.UTC)  # 02:00 of the 21st in Tokyo
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_schedule_context(instance=instance, scheduled_execution_time=tick, repository_def=repository)
        request = repository.get_schedule_def("every_night").evaluate_tick(context).run_requests[0]
    assert request.partition_key == "2026-11-20"
