"""Stage 2: every record in exactly one place, the same rows whatever the order of delivery, healed after a kill."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.landing.spelling import turn_id
from pipelines.schemas import DUPLICATES, RECORDS, TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import NOON, call, deliver, rows_of

ROOT = Path(__file__).resolve().parents[2]


def two_calls(attempt: str, *, days: tuple[int, int] = (0, 0)) -> list[dict]:
    """An attempt whose second call goes on from the first."""
    first = call(attempt, day=days[0], text="let me think")
    messages = [
        *first["request"]["messages"],
        {"role": "assistant", "content": "let me think"},
        {"role": "user", "content": "and?"},
    ]
    second = call(attempt, number=1, day=days[1], text="4", request={"messages": messages, "tools": None})
    return [first, second]


def test_an_attempt_becomes_one_row_in_uniform_words(workspace: Workspace) -> None:
    deliver(workspace, two_calls("a"))
    built = build(workspace)
    assert (built.days, built.trajectories, built.duplicates, built.faults) == (["2026-11-20"], 1, 0, 0)
    (row,) = rows_of(workspace, TRAJECTORIES.name)
    turns, calls = json.loads(row["turns"]), json.loads(row["calls"])
    assert [(turn["role"], turn["sampled"], turn["call"]) for turn in turns] == [
        ("system", False, None),
        ("user", False, None),
        ("assistant", True, 0),
        ("user", False, None),
        ("assistant", True, 1),
    ]
    assert [entry["token_ids"] for entry in calls] == [[4, 5], [4, 5]]
    assert row["trajectory_id"] == workspace.identity.of("trajectory", workspace.identity.of("bundle", "recorder", "a"), "")
    assert row["task_key"] == workspace.identity.task_key("sums", "1")
    said_first = turn_id(workspace.identity, {"role": "system", "content": "Add."})
    assert row["context_key"] == workspace.identity.context_key([said_first])
    assert (row["policy_family"], row["policy_version"], row["exact_tokens"]) == ("nightshift-agent", "nightshift-agent@0", True)
    assert (row["num_turns"], row["num_sampled_turns"], row["num_sampled_tokens"]) == (5, 2, 4)
    assert len(row["record_ids"]) == 2


def test_building_again_finds_nothing_to_do(workspace: Workspace) -> None:
    deliver(workspace, two_calls("a"))
    build(workspace)
    version = workspace.lake.version(TRAJECTORIES.name)
    again = build(workspace)
    assert again.why_nothing is not None and again.days == []
    assert workspace.lake.version(TRAJECTORIES.name) == version


def test_an_empty_lake_has_nothing_to_build(workspace: Workspace) -> None:
    assert build(workspace).why_nothing is not None


def test_a_late_record_moves_the_attempt_to_its_day_and_leaves_the_old_one(workspace: Workspace) -> None:
    first, second = two_calls("a", days=(0, 2))
    deliver(workspace, [first, call("b")], "logs/1.jsonl")
    build(workspace)
    deliver(workspace, [second], "logs/2.jsonl")
    assert build(workspace).days == ["2026-11-20", "2026-11-22"]
    days = {row["trajectory_id"]: row["day"] for row in rows_of(workspace, TRAJECTORIES.name)}
    assert sorted(days.values()) == ["2026-11-20", "2026-11-22"]
    assert workspace.queries.run("trajectories/unaccounted").num_rows == 0


def test_records_of_equal_content_in_one_attempt_are_duplicates(workspace: Workspace) -> None:
    deliver(workspace, [call("a")])
    (record,) = workspace.lake.read(RECORDS.name).to_pylist()
    for number in range(2):
        again = {**record, "record_id": f"rec_again{number}"}
        workspace.lake.append_missing(RECORDS.name, pa.Table.from_pylist([again], schema=RECORDS.schema))
    build(workspace)
    (row,) = rows_of(workspace, TRAJECTORIES.name)
    duplicates = rows_of(workspace, DUPLICATES.name)
    assert len(row["record_ids"]) == 1
    assert [(d["trajectory_id"], d["kind"], d["similarity"]) for d in duplicates] == [(row["trajectory_id"], "exact", 1.0)] * 2
    assert {*row["record_ids"], *(d["record_id"] for d in duplicates)} == {record["record_id"], "rec_again0", "rec_again1"}
    assert workspace.queries.run("trajectories/unaccounted").num_rows == 0


def test_skipped_records_are_in_no_trajectory(workspace: Workspace) -> None:
    deliver(workspace, [call("a")])
    (record,) = workspace.lake.read(RECORDS.name).to_pylist()
    meta = {**record, "record_id": "rec_meta", "content_id": "con_meta", "skip_reason": "meta"}
    workspace.lake.append(RECORDS.name, pa.Table.from_pylist([meta], schema=RECORDS.schema))
    build(workspace)
    assert all("rec_meta" not in row["record_ids"] for row in rows_of(workspace, TRAJECTORIES.name))
    assert build(workspace).why_nothing is not None


def test_a_fault_is_a_fault_and_no_outcome(workspace: Workspace) -> None:
    deliver(workspace, [call("a", response=None, fault="timeout", outcome=0.0), call("b", outcome=0.5)])
    assert build(workspace).faults == 1
    found = {(row["fault"], row["outcome"]) for row in rows_of(workspace, TRAJECTORIES.name)}
    assert found == {("timeout", None), (None, 500_000)}


def test_a_source_maps_served_models_to_policies_and_names_the_harness(tmp_path: Path) -> None:
    config = '[[sources]]\npath = "logs"\nharness = "shop"\npolicies = { toy = "nightshift-agent@3" }\n'
    workspace = make_workspace(tmp_path / "mapped", config)
    named = {"policy_version": None, "model": "toy"}
    deliver(workspace, [call("a", **named), call("b", policy_version=None, model="gpt"), call("c")], "logs/deep/1.jsonl")
    deliver(workspace, [call("d", **named), call("e", policy_version=None, model=None)], "elsewhere.jsonl")
    build(workspace)
    found = {(row["harness"], row["policy_family"], row["policy_version"]) for row in rows_of(workspace, TRAJECTORIES.name)}
    assert found == {
        ("shop", "gpt", None),
        ("shop", "nightshift-agent", "nightshift-agent@0"),
        ("shop", "nightshift-agent", "nightshift-agent@3"),
        ("sums", "toy", None),
        ("sums", "unknown", None),
    }


def test_a_record_that_cannot_be_read_stops_nobody_else_and_is_named(workspace: Workspace) -> None:
    deliver(workspace, [call("a")])
    (record,) = workspace.lake.read(RECORDS.name).to_pylist()
    torn = {**record, "record_id": "rec_torn", "content_id": "con_torn", "bundle_key": "bun_torn", "raw": "{"}
    workspace.lake.append(RECORDS.name, pa.Table.from_pylist([torn], schema=RECORDS.schema))
    built = build(workspace)
    assert (built.trajectories, built.unreadable) == (1, 1)
    (left,) = rows_of(workspace, DUPLICATES.name)
    assert (left["record_id"], left["kind"], left["trajectory_id"]) == ("rec_torn", "unreadable", None)
    assert "unexpected end" in left["detail"]
    assert build(workspace).why_nothing is not None


def test_equal_answers_have_equal_content_whatever_their_call_ids(workspace: Workspace) -> None:
    def with_tool(attempt: str, call_id: str, arguments: str) -> dict:
        wants = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}
        message = {"role": "assistant", "content": None, "tool_calls": [wants]}
        return call(attempt, response={"message": message, "finish_reason": "tool_calls"})

    deliver(workspace, [with_tool("a", "x", "{}"), with_tool("b", "y", "{ }"), with_tool("c", "x", '{"a":1}')])
    build(workspace)
    rows = rows_of(workspace, TRAJECTORIES.name)
    assert len({row["content_id"] for row in rows}) == 2


REORDERED = [line for name in "abc" for line in two_calls(name, days=(0, ord(name) % 3))] + [call("d"), call("e", day=1)]


@pytest.fixture(scope="module")
def in_order(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    """Rows by table of what is delivered in its order, in one file."""
    workspace = make_workspace(tmp_path_factory.mktemp("in-order") / "w")
    deliver(workspace, REORDERED)
    build(workspace)
    return {table: rows_of(workspace, table) for table in (TRAJECTORIES.name, DUPLICATES.name)}


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), num_files=st.integers(1, 4), builds=st.booleans())
def test_the_same_rows_whatever_the_order_and_the_files(
    seed: int, num_files: int, builds: bool, in_order: dict[str, list[dict]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    draw = random.Random(seed)
    shuffled = make_workspace(tmp_path_factory.mktemp("shuffled") / "w")
    delivered = REORDERED + draw.sample(REORDERED, 3)  # some twice
    draw.shuffle(delivered)
    for number in range(num_files):
        deliver(shuffled, delivered[number::num_files], f"logs/{number}.jsonl")
        if builds:
            build(shuffled)
    build(shuffled)
    assert {table: rows_of(shuffled, table) for table in in_order} == in_order
    assert shuffled.queries.run("trajectories/unaccounted").num_rows == 0


@pytest.mark.parametrize(
    "step", [f"{t}:{when}_commit" for t in (TRAJECTORIES.name, DUPLICATES.name) for when in ("before", "after")]
)
def test_killed_at_any_step_the_next_build_heals_it(step: str, tmp_path: Path) -> None:
    folders = [tmp_path / "killed", tmp_path / "whole"]
    for folder in folders:
        workspace = make_workspace(folder)
        deliver(workspace, [*two_calls("a", days=(0, 1)), call("b")])
        record = min(workspace.lake.read(RECORDS.name).to_pylist(), key=lambda row: row["record_id"])
        build(workspace)
        again = {**record, "record_id": "rec_0", "landed_at": NOON}  # sorts first: takes the place of the one that stood
        workspace.lake.append(RECORDS.name, pa.Table.from_pylist([again], schema=RECORDS.schema))
    program = f"from pipelines.trajectories import build; from pipelines.workspace import Workspace; build(Workspace.open({str(folders[0])!r}))"
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "NIGHTSHIFT_KILL_AT": step})
    assert child.returncode == -signal.SIGKILL
    killed, whole = (Workspace.open(folder) for folder in folders)
    build(killed)
    build(whole)
    assert killed.queries.run("trajectories/unaccounted").num_rows == 0
    for table in (TRAJECTORIES.name, DUPLICATES.name):
        assert rows_of(killed, table) == rows_of(whole, table)
