"""Top-up through a real harness against a server that answers by rule: what is run, what it forms, what bounds and stops it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines import top_up
from pipelines.groups import violations, wanted_tasks
from pipelines.landing.land import land
from pipelines.rewards.score import score
from pipelines.schemas import GROUPS, REWARDS, SPLITS, TRAJECTORIES, WANTED
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.deliver import call
from tests.night_rows import checkpoint_row
from tests.policy_double import PolicyDouble
from tests.top_up.conftest import HARNESS, LAST_NIGHT, NIGHT, Opened, evening, other, taken_in

ROOT = Path(__file__).resolve().parents[2]


def lines_of(workspace: Workspace, night: str = NIGHT) -> list[dict[str, Any]]:
    log = workspace.top_ups / f"{night}.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def grouped(workspace: Workspace) -> list[dict[str, Any]]:
    """Rows of groups/groups with the purpose of each."""
    purposes = {row["trajectory_id"]: row["purpose"] for row in workspace.lake.read(TRAJECTORIES.name).to_pylist()}
    return [{**row, "purpose": purposes[row["trajectory_id"]]} for row in workspace.lake.read(GROUPS.name).to_pylist()]


@pytest.mark.parametrize("named", [True, False])
def test_single_attempts_of_another_model_become_groups_of_ours_with_that_attempt_as_anchor(
    opened: Opened, server: PolicyDouble, named: bool
) -> None:
    workspace = opened()
    server.answer = lambda body: "4" if body["seed"] % 2 else "5"
    unnamed = {} if named else {"task_id": None}
    lines = [other(f"{task}-{n}", task=task, number=n, outcome=0.0 if n else 1.0, **unnamed) for task in "ab" for n in range(2)]
    taken_in(workspace, lines)
    assert {(row["task_id"], row["reason"], row["num_own"]) for row in wanted_tasks(workspace)} == {
        (task if named else None, "other_policy", 0) for task in "ab"
    }
    report = top_up.run(workspace, NIGHT, clock=evening)
    assert (report.rollouts, report.found, report.tasks, report.tokens) == (8, 0, 2, 8 * 8)
    assert (report.stopped_by, report.faults, report.skipped, report.why_nothing) == ("done", {}, {}, None)
    assert (report.temperature, report.policy_version, report.wanted_night) == (1.0, "nightshift-agent@0", LAST_NIGHT)
    lines = lines_of(workspace)
    assert {(line["purpose"], line["policy_version"]) for line in lines} == {("top_up", "nightshift-agent@0")}
    assert {line["task_id"] for line in lines} == ({"a", "b"} if named else {None})
    assert {line["outcome"] for line in lines} <= {0.0, 1.0} and len({line["request"]["sampling"]["seed"] for line in lines}) == 8
    before = {row["group_id"] for row in grouped(workspace)}  # the other model's own pairs
    taken_in(workspace, night=NIGHT)  # no source names the log of the top-ups, and it lands
    new = [row for row in grouped(workspace) if row["group_id"] not in before]
    assert len({row["group_id"] for row in new}) == 2
    for group_id in {row["group_id"] for row in new}:
        held = [row for row in new if row["group_id"] == group_id]
        assert [(row["role"], row["purpose"], row["policy_family"]) for row in held if row["role"] == "member"] == [
            ("member", "top_up", "nightshift-agent")
        ] * 4
        (anchor,) = [row for row in held if row["role"] == "anchor"]
        assert (anchor["policy_family"], anchor["purpose"], anchor["outcome"]) == ("gpt", "production", 1_000_000)
        assert workspace.identity.group_id(
            anchor["task_key"], anchor["context_key"], [row["trajectory_id"] for row in held if row["role"] == "member"]
        ) == (group_id)
    assert violations(workspace).num_rows == 0
    scored = score(workspace, NIGHT)
    assert scored.groups == 4
    anchors = {(row["group_id"], row["trajectory_id"]) for row in new if row["role"] == "anchor"}
    rewarded = {(row["group_id"], row["trajectory_id"]) for row in workspace.lake.read(REWARDS.name).to_pylist()}
    assert len(rewarded) == 4 + 8 and not rewarded & anchors


def test_a_night_that_was_run_makes_nothing_again_and_asks_no_server(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened()
    taken_in(workspace, [other("a", task="a")])
    assert top_up.run(workspace, NIGHT).rollouts == 4
    written = (workspace.top_ups / f"{NIGHT}.jsonl").read_bytes()
    server.dies_after = 0
    again = top_up.run(workspace, NIGHT)
    assert (again.rollouts, again.found, again.tokens, again.problem) == (0, 4, 32, None)
    assert again.why_nothing == "this night's 4 rollouts are in its log already"
    assert (workspace.top_ups / f"{NIGHT}.jsonl").read_bytes() == written
    taken_in(workspace, night=NIGHT)
    assert top_up.run(workspace, NIGHT).found == 4  # also once its lines landed, and were sealed


def test_attempts_of_our_own_that_wait_are_counted_and_the_most_useful_goes_first(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened("top_up = 6")
    taken_in(workspace, [call("own", task="own"), other("new", task="new"), other("old", task="old", day=-20)])
    report = top_up.run(workspace, NIGHT)
    asked = [body["messages"][-1]["content"] for body in server.asked]
    # 4 for the one, 2 of 3 for that which waits with one of its own; the old one is left for another night
    assert (sorted(set(asked)), asked.count("task new"), asked.count("task own")) == (["task new", "task own"], 4, 2)
    assert (report.rollouts, report.stopped_by) == (6, "rollouts")
    assert top_up.run(opened("top_up = 5"), "2026-11-22").rollouts == 5  # one more and the own one makes a pair
    server.asked.clear()
    assert top_up.run(opened("top_up = 1", "attempts = 3"), "2026-11-23").why_nothing is not None  # one alone makes none


def test_tokens_bind_although_all_could_start_at_once(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened("top_up = 64", "max_tokens = 100")
    server.seconds = 0.02
    taken_in(workspace, [other(f"{n}", task=f"{n}") for n in range(16)])
    report = top_up.run(workspace, NIGHT)
    assert (report.rollouts, report.tokens, report.stopped_by) == (12, 96, "tokens")
    assert report.problem is None and len(lines_of(workspace)) == 12
    server.asked.clear()
    again = top_up.run(workspace, NIGHT)  # the budget is the night's, not the call's
    assert (again.rollouts, again.stopped_by, server.asked) == (0, "tokens", [])


def test_minutes_bind_and_cut_no_rollout(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened("top_up = 64", f"max_minutes = {2.0 / 60}")
    server.seconds = 2.2
    taken_in(workspace, [other(f"{n}", task=f"{n}") for n in range(16)])
    report = top_up.run(workspace, NIGHT)
    assert report.stopped_by == "minutes" and 0 < report.rollouts < 64
    assert report.faults == {} and all(line["response"] for line in lines_of(workspace))
    again = top_up.run(workspace, NIGHT)
    assert (again.rollouts, again.stopped_by) == (0, "minutes")


KILLING = """
import os, signal
from pathlib import Path

COUNT = Path(__file__).with_name("count")

async def rollout(task, client):
    await client.chat(task["messages"], tools=task["tools"])
    count = int(COUNT.read_text()) + 1 if COUNT.exists() else 1
    COUNT.write_text(str(count))
    if count == 6:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_top_up_goes_on_with_what_is_missing_within_the_nights_budget(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened("top_up = 10", code=KILLING)
    taken_in(workspace, [other(f"{n}", task=f"{n}") for n in range(4)])
    program = f"from pipelines import top_up; from pipelines.workspace import Workspace; top_up.run(Workspace.open({str(workspace.folder)!r}), {NIGHT!r})"
    environment = {**os.environ, "NIGHTSHIFT_HARNESS__CONCURRENCY": "2"}
    killed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    kept = lines_of(workspace)
    assert 4 <= len(kept) <= 5
    checkpoint_row(workspace, "ckp_1", 1)  # whoever may become champion meanwhile: the night goes on with whom it began
    report = top_up.run(workspace, NIGHT)
    assert (report.rollouts, report.found, report.stopped_by) == (10 - len(kept), len(kept), "rollouts")
    lines = lines_of(workspace)
    assert lines[: len(kept)] == kept
    assert len({line["attempt_id"] for line in lines}) == 10 and {line["policy_version"] for line in lines} == {
        "nightshift-agent@0"
    }


def test_tasks_of_another_split_are_never_run_not_even_where_a_list_names_them(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened()
    keys = {task: workspace.identity.task_key("sums", task) for task in ("held", "audit", "train", "none")}
    splits = [
        {"task_key": keys[task], "split": split, "source": "drawn", "day": LAST_NIGHT}
        for task, split in (("held", "held_out"), ("audit", "audit"), ("train", "train"))
    ]
    workspace.lake.append(SPLITS.name, pa.Table.from_pylist(splits, schema=SPLITS.schema))
    land(workspace, [_written(workspace, [other(task, task=task) for task in keys])])
    build(workspace)
    from pipelines.groups import want

    want(workspace, LAST_NIGHT)
    assert [row["task_id"] for row in wanted_tasks(workspace)] == ["train"]
    listed = [
        {"task_key": key, "task_id": task, "harness": "sums", "reason": "other_policy", "rank": rank, "night": LAST_NIGHT}
        for rank, (task, key) in enumerate(keys.items(), start=1)
    ]
    workspace.lake.replace_computed(WANTED.name, [LAST_NIGHT], lambda _: pa.Table.from_pylist(listed, schema=WANTED.schema))
    report = top_up.run(workspace, NIGHT)
    assert {body["messages"][-1]["content"] for body in server.asked} == {"task train"} and report.rollouts == 4


def _written(workspace: Workspace, lines: list[dict[str, Any]]) -> Path:
    path = workspace.folder / "given.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_what_would_be_asked_otherwise_than_in_production_is_skipped_with_its_reason(
    opened: Opened, server: PolicyDouble
) -> None:
    workspace = opened()
    secret = "sk-" + "proj-abcdefghijklmnop0123"
    request = {
        "messages": [{"role": "user", "content": f"use {secret}"}],
        "tools": None,
        "sampling": {},
    }
    orphan = {"messages": [{"role": "system", "content": "Go on."}], "tools": None, "sampling": {}}
    lines = [
        other("s", task="s", request=request),
        other("o", task="o", request=orphan),
        other("e", task="e", harness="elsewhere"),
    ]
    taken_in(workspace, lines)
    assert len(wanted_tasks(workspace)) == 3
    report = top_up.run(workspace, NIGHT)
    assert (report.rollouts, report.stopped_by, report.skipped) == (0, "nothing_wanted", {"no_request": 1, "redacted": 1})
    assert "1 redacted: what was asked holds a secret" in (report.why_nothing or "") and server.asked == []
    # a task file says what was asked whatever the log lost
    (workspace.folder / "tasks.jsonl").write_text(
        json.dumps({"task_id": "s", "messages": [{"role": "user", "content": "whole"}], "tools": None})
    )
    report = top_up.run(opened("top_up = 64", 'tasks = "tasks.jsonl"'), NIGHT)
    assert (report.rollouts, report.skipped) == (4, {"no_request": 1})
    assert {body["messages"][0]["content"] for body in server.asked} == {"whole"}
    assert {line["task_id"] for line in lines_of(workspace)} == {"s"}


def test_the_task_is_asked_as_production_asked_it_last_with_its_tools(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened()
    tools = [{"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}]
    shots = [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2"},
    ]
    taken_in(workspace, [other("a", task="a", number=5, request={"messages": shots, "tools": tools}), other("b", task="a")])
    top_up.run(workspace, NIGHT, clock=evening)
    assert {json.dumps(body["messages"]) for body in server.asked} == {json.dumps(shots)}
    assert all(body["tools"] == tools for body in server.asked)
    taken_in(workspace, night=NIGHT)
    (anchor,) = [row for row in grouped(workspace) if row["role"] == "anchor"]
    newest = {row["trajectory_id"]: row["ended_at"] for row in workspace.lake.read(TRAJECTORIES.name).to_pylist()}
    assert newest[anchor["trajectory_id"]].minute == 5  # that of the same context


def test_a_harness_that_asks_under_another_context_is_told_of(opened: Opened, server: PolicyDouble) -> None:
    code = HARNESS.replace('task["messages"]', '[{"role": "system", "content": "Other."}, *task["messages"][1:]]')
    workspace = opened(code=code)
    server.answer = lambda body: "5"
    taken_in(workspace, [other("a", task="a", outcome=1.0)])
    assert top_up.run(workspace, NIGHT, clock=evening).rollouts == 4
    land(workspace)
    build(workspace)
    taken_in(workspace, night=NIGHT)
    assert {row["role"] for row in grouped(workspace)} == {"member"}
    score(workspace, NIGHT)
    from pipelines.groups import want

    want(workspace, NIGHT)
    assert [(row["task_id"], row["reason"]) for row in wanted_tasks(workspace)] == [("a", "context_mismatch")]


def test_a_server_that_is_gone_stops_nothing_but_the_top_up(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened()
    taken_in(workspace, [other(f"{n}", task=f"{n}") for n in range(4)])
    server.dies_after = 6
    report = top_up.run(workspace, NIGHT)
    assert report.stopped_by == "failed" and "does not answer" in (report.problem or "")
    assert report.rollouts == len(lines_of(workspace)) <= 6
    server.dies_after = 0
    assert top_up.run(workspace, "2026-11-22").why_nothing == top_up.run(workspace, "2026-11-22").problem
    server.dies_after = None
    again = top_up.run(workspace, NIGHT)
    assert (again.rollouts + again.found, again.problem, again.stopped_by) == (16, None, "done")


def test_a_harness_that_always_fails_is_given_up_and_told(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened(
        code="async def rollout(task, client):\n    await client.chat(task['messages'])\n    raise KeyError('ticket')\n"
    )
    taken_in(workspace, [other(f"{n}", task=f"{n}") for n in range(16)])
    report = top_up.run(workspace, NIGHT)
    assert (report.rollouts, report.stopped_by) == (0, "failed") and len(server.asked) == 8
    assert "failed at every attempt (8 harness_error)" in (report.problem or "") and report.why_nothing == report.problem
    opened(code="async def rollout(task, client): return 1 / 0")
    assert "ZeroDivisionError" in (top_up.run(workspace, NIGHT).problem or "")


def test_off_without_a_harness_and_before_a_first_list_it_says_why(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened()
    assert top_up.run(workspace, NIGHT).why_nothing == "no earlier night wants a task of this workspace's harness"
    taken_in(workspace, [other("a", task="a")], night=NIGHT)
    assert top_up.run(workspace, NIGHT).stopped_by == "nothing_wanted"  # the list of the very night is for the next one
    off = top_up.run(opened("top_up = 0"), "2026-11-22")
    assert (off.stopped_by, off.why_nothing) == (
        "off",
        "top-up is off ([groups] top_up = 0); what it would run: nightshift groups wanted",
    )
    (workspace.folder / "nightshift.toml").write_text("[groups]\ntop_up = 8\n")
    bare = top_up.run(Workspace.open(workspace.folder), "2026-11-22")
    assert bare.stopped_by == "no_harness" and "no harness is configured" in (bare.why_nothing or "")
    assert server.asked == []


def spread_rows(workspace: Workspace, night: str, num_groups: int, num_flat: int) -> None:
    """Groups of two top-ups each, sealed on a night and rewarded, so many of them without spread."""
    trajectories, groups, rewards = [], [], []
    for number in range(num_groups):
        for member in range(2):
            trajectory_id = f"trj_{night}_{number}_{member}"
            group = {"group_id": f"grp_{night}_{number}", "trajectory_id": trajectory_id}
            facts = {"task_key": f"tsk_{night}_{number}", "context_key": "ctx", "policy_family": "nightshift-agent"}
            trajectories.append({"trajectory_id": trajectory_id, "day": night, "purpose": "top_up", **facts})
            groups.append({**group, "role": "member", "sealed_night": night, "window": "2026-11-19", **facts})
            reward = 0 if number < num_flat else member * 1_000_000
            rewards.append({**group, "rubric_hash": workspace.rubric()[1], "reward_key": "k", "reward": reward, "sequence": 1})
    for spec, rows in ((TRAJECTORIES, trajectories), (GROUPS, groups), (REWARDS, rewards)):
        workspace.lake.append(spec.name, pa.Table.from_pylist(rows, schema=spec.schema))


def test_the_temperature_follows_the_share_without_spread(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened("top_up = 8", "max_temperature = 1.25")
    assert top_up.sampling(workspace, "2026-11-01") == (1.0, None)
    spread_rows(workspace, "2026-11-01", 3, 3)
    assert top_up.sampling(workspace, "2026-11-02") == (1.0, None)  # three groups say nothing
    spread_rows(workspace, "2026-11-02", 3, 3)
    assert top_up.sampling(workspace, "2026-11-02") == (1.0, None)  # a night's own groups come after its top-ups
    assert top_up.sampling(workspace, "2026-11-03") == (1.1, 1.0)
    spread_rows(workspace, "2026-11-03", 2, 0)
    spread_rows(workspace, "2026-11-04", 2, 2)
    assert top_up.sampling(workspace, "2026-11-05") == (1.25, 0.8)  # as far as it may
    spread_rows(workspace, "2026-11-20", 8, 3)
    assert top_up.sampling(workspace, "2026-11-21") == (1.25, 0.375)  # the old ones count no more, and this is neither
    spread_rows(workspace, "2026-11-21", 8, 0)
    assert top_up.sampling(workspace, "2026-11-22") == (1.15, 0.1875)
    assert top_up.sampling(workspace, "2026-11-21") == (1.25, 0.375)  # of a night, the same whenever it is asked
    taken_in(workspace, [other("a", task="a")])
    assert top_up.run(workspace, "2026-11-22").temperature == 1.15
    assert {line["request"]["sampling"]["temperature"] for line in lines_of(workspace, "2026-11-22")} == {1.15}
    assert {body["temperature"] for body in server.asked} == {1.15}


def test_a_late_better_anchor_changes_no_sealed_group(opened: Opened, server: PolicyDouble) -> None:
    workspace = opened()
    taken_in(workspace, [other("a", task="a", outcome=0.0)])
    top_up.run(workspace, NIGHT, clock=evening)
    taken_in(workspace, night=NIGHT)
    before = grouped(workspace)
    assert [row["role"] for row in before].count("anchor") == 1
    taken_in(workspace, [other("better", task="a", number=9, outcome=1.0)], night="2026-11-22")
    new = [row for row in grouped(workspace) if row not in before]
    assert [row for row in grouped(workspace) if row in before] == before
    # the two of the other model form a group of their own: being an anchor binds nobody
    assert [(row["role"], row["policy_family"]) for row in new] == [("member", "gpt")] * 2
    assert violations(workspace).num_rows == 0
