"""Stage 3: groups do not depend on order, never change once sealed, and two sealers cannot double them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.groups import overview, seal, violations, want
from pipelines.landing.land import land
from pipelines.schemas import CHECKPOINTS, DECISIONS, GROUPS, REWARDS, TRAJECTORIES, WANTED
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import NOON, call, deliver, rows_of
from tests.landing.lines import write_lines

ROOT = Path(__file__).resolve().parents[2]
NIGHT = "2026-11-20"
NO_HELD_OUT = "[evaluation]\nheld_out_share = 0.0\n"


def attempts(count: int, *, task: str = "1", start: int = 0, **changes: object) -> list[dict]:
    """Attempts of which every second one passes."""
    return [call(f"{task}-{number}", task=task, outcome=float(number % 2), **changes) for number in range(start, start + count)]


def members(workspace: Workspace) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in workspace.lake.read(GROUPS.name).to_pylist():
        found.setdefault(row["group_id"], set()).add(row["trajectory_id"])
    return found


def test_a_full_group_is_sealed_at_once_and_the_rest_waits(workspace: Workspace) -> None:
    deliver(workspace, [*attempts(12), *attempts(1, task="2")])
    build(workspace)
    sealed = seal(workspace, NIGHT, judged=False)
    assert (sealed.groups, sealed.members, sealed.waiting) == (1, 8, 5)
    ids = sorted(row["trajectory_id"] for row in rows_of(workspace, TRAJECTORIES.name) if row["task_id"] == "1")
    ((group_id, held),) = members(workspace).items()
    assert held == set(ids[:8])
    row = rows_of(workspace, GROUPS.name)[0]
    assert group_id == workspace.identity.group_id(row["task_key"], row["context_key"], ids[:8])
    judged = seal(workspace, NIGHT, judged=True)
    assert (judged.groups, judged.members, judged.waiting) == (1, 4, 1)
    again = seal(workspace, NIGHT, judged=True)
    assert again.groups == 0 and again.why_nothing is not None
    assert violations(workspace).num_rows == 0


def test_a_window_that_is_over_is_sealed_without_being_judged(workspace: Workspace) -> None:
    deliver(workspace, attempts(3))  # 2026-11-20 lies in the window that begins on Thursday 2026-11-19
    build(workspace)
    assert seal(workspace, "2026-11-25", judged=False).groups == 0
    assert seal(workspace, "2026-11-26", judged=False).members == 3
    assert {row["seal_reason"] for row in rows_of(workspace, GROUPS.name)} == {"closed"}


def test_too_few_that_nothing_tells_apart_wait_for_more(workspace: Workspace) -> None:
    """A pair that both passed teaches nothing, and neither does a pair that only a judge could order: sealed, it could not grow."""
    deliver(
        workspace,
        [call(f"{task}-{n}", task=task, outcome=outcome) for task, outcome in (("p", 1.0), ("u", None)) for n in range(3)],
    )
    build(workspace)
    assert seal(workspace, NIGHT, judged=True).groups == 0
    deliver(workspace, [call("p-3", task="p", outcome=0.0), call("u-3", task="u")], "logs/2.jsonl")
    build(workspace)
    assert seal(workspace, NIGHT, judged=True).members == 8
    assert sorted(len(held) for held in members(workspace).values()) == [4, 4]


def test_what_another_verifier_may_tell_apart_is_sealed_in_pairs(tmp_path: Path) -> None:
    config = '[[rewards.verifiers]]\nname = "mine"\nkind = "python"\nentry = "verifier.py:verify"\n'
    workspace = make_workspace(tmp_path / "w", config)
    deliver(workspace, [call(str(number)) for number in range(2)])
    build(workspace)
    assert seal(workspace, NIGHT, judged=True).members == 2


def test_answers_that_were_cut_off_are_no_siblings_unless_the_workspace_says_so(tmp_path: Path) -> None:
    for config, num_members in (("", 2), ('[groups]\ntruncated = "scored"\n', 3)):
        workspace = make_workspace(tmp_path / str(num_members), config)
        lines = attempts(3)
        lines[2]["response"]["finish_reason"] = "length"
        deliver(workspace, lines)
        build(workspace)
        assert seal(workspace, NIGHT, judged=True).members == num_members
        assert overview(workspace).reasons.get("truncated", 0) == 3 - num_members


def test_late_siblings_form_a_group_of_their_own(workspace: Workspace) -> None:
    deliver(workspace, attempts(3), "logs/1.jsonl")
    build(workspace)
    seal(workspace, NIGHT, judged=True)
    before = rows_of(workspace, GROUPS.name)
    deliver(workspace, attempts(2, start=3), "logs/2.jsonl")
    build(workspace)
    assert seal(workspace, NIGHT, judged=True).members == 2
    after = rows_of(workspace, GROUPS.name)
    assert [row for row in after if row["group_id"] == before[0]["group_id"]] == before
    assert sorted(len(held) for held in members(workspace).values()) == [2, 3]


REORDERED = [*attempts(7), *attempts(4, task="2"), *attempts(3, task="3", day=8), *attempts(1, task="4")]


@pytest.fixture(scope="module", params=[2, 5])
def in_order(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Workspace]:
    """Settings, and what they make of lines delivered in their order, in one file; of both sizes some groups are full."""
    config = f"[groups]\nsize = {request.param}\n"
    workspace = make_workspace(tmp_path_factory.mktemp("in-order") / "w", config)
    deliver(workspace, REORDERED)
    build(workspace)
    seal(workspace, NIGHT, judged=True)
    return config, workspace


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), num_files=st.integers(1, 3))
def test_group_ids_depend_on_neither_order_nor_files(
    seed: int, num_files: int, in_order: tuple[str, Workspace], tmp_path_factory: pytest.TempPathFactory
) -> None:
    config, plain = in_order
    lines, draw = list(REORDERED), random.Random(seed)
    shuffled = make_workspace(tmp_path_factory.mktemp("shuffled") / "w", config)
    shuffled.queries.threads = draw.choice([1, 2])
    draw.shuffle(lines)
    for number in range(num_files):
        deliver(shuffled, lines[number::num_files], f"logs/{number}.jsonl")
        build(shuffled)
    seal(shuffled, NIGHT, judged=True)
    assert rows_of(shuffled, GROUPS.name) == rows_of(plain, GROUPS.name)
    assert violations(shuffled).num_rows == 0
    assert overview(shuffled).groups == overview(plain).groups


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_sealed_groups_never_change_whatever_comes_later(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    draw = random.Random(seed)
    workspace = make_workspace(tmp_path_factory.mktemp("late") / "w", "[groups]\nsize = 3\n")
    lines = [call(f"{task}-{number}", task=task, day=draw.randrange(10)) for task in "ab" for number in range(6)]
    draw.shuffle(lines)
    sealed: dict[str, set[str]] = {}
    for start in range(0, len(lines), 4):
        deliver(workspace, lines[start : start + 4], f"logs/{start}.jsonl")
        build(workspace)
        seal(workspace, f"2026-11-{draw.randrange(20, 30)}", judged=draw.random() < 0.5)
        now = members(workspace)
        assert {group_id: now[group_id] for group_id in sealed} == sealed
        sealed = now
    assert violations(workspace).num_rows == 0


def test_a_log_that_was_written_anew_makes_its_group_stale_and_stops_nothing(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", "[groups]\nsize = 2\n")
    path, lines = workspace.folder / "logs" / "calls.jsonl", attempts(2)

    def taken_in() -> int:
        land(workspace, [write_lines(path, lines)])
        build(workspace)
        return seal(workspace, "2026-11-20", judged=False).stale

    assert taken_in() == 0
    ((group_id, sealed),) = members(workspace).items()
    user = lines[0]["request"]["messages"][1]
    request = {"messages": [{"role": "system", "content": "Other."}, user], "tools": None}
    lines[0] = {**lines[0], "request": request, "ended_at": "2026-11-20T23:00:00+00:00"}
    assert taken_in() == 1
    assert rows_of(workspace, "groups/stale") == [
        {"group_id": group_id, "reason": "member_changed", "trajectory_ids": sorted(sealed)}
    ]
    assert violations(workspace).num_rows == 0
    assert taken_in() == 0


def test_two_racing_sealers_double_nothing(workspace: Workspace) -> None:
    deliver(workspace, [line for task in "abcdef" for line in attempts(5, task=task)])
    build(workspace)
    sealers = [Workspace.open(workspace.folder) for _ in range(4)]
    with ThreadPoolExecutor(len(sealers)) as pool:
        reports = list(pool.map(lambda sealer: seal(sealer, NIGHT, judged=True), sealers))
    assert sum(report.members for report in reports) == 30
    assert sum(report.groups for report in reports) == 6
    assert workspace.lake.read(GROUPS.name).num_rows == 30
    assert violations(workspace).num_rows == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_sealing(when: str, workspace: Workspace) -> None:
    deliver(workspace, attempts(3))
    build(workspace)
    program = (
        "from pipelines.groups import seal; from pipelines.workspace import Workspace; "
        f"seal(Workspace.open({str(workspace.folder)!r}), {NIGHT!r}, judged=True)"
    )
    step = {**os.environ, "NIGHTSHIFT_KILL_AT": f"{GROUPS.name}:{when}_commit"}
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=step).returncode == -signal.SIGKILL
    assert seal(workspace, NIGHT, judged=True).groups == (1 if when == "before" else 0)
    assert [len(held) for held in members(workspace).values()] == [3]


def test_versions_further_apart_than_the_lag_are_never_siblings(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", "[groups]\nmax_policy_lag = 1\n")
    chain_of(workspace, 4)
    lines = [
        call(f"{version}-{number}", policy_version=f"nightshift-agent@{version}", outcome=float(number))
        for version in range(6)
        for number in range(2)
    ]
    deliver(workspace, lines)
    build(workspace)
    seal(workspace, NIGHT, judged=True)
    found: dict[str, set[str]] = {}
    for row in workspace.lake.read(GROUPS.name).to_pylist():
        found.setdefault(row["group_id"], set()).add(row["policy_version"].partition("@")[2])
    # 0 to 4 are the chain, in runs of two; 5 was never trained and stands alone
    assert sorted(sorted(versions) for versions in found.values()) == [["0", "1"], ["2", "3"], ["4"], ["5"]]
    assert violations(workspace).num_rows == 0


def test_the_overview_counts_sealed_and_open_groups_by_outcome(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", NO_HELD_OUT)
    lines = [
        *(call(f"m{n}", task="mixed", outcome=float(n)) for n in range(2)),
        *(call(f"p{n}", task="passed", outcome=1.0) for n in range(2)),
        *(call(f"f{n}", task="failed", outcome=0.99) for n in range(2)),
        *(call(f"u{n}", task="unknown") for n in range(2)),
        call("s", task="single", outcome=1.0, policy_version=None, model="gpt"),
    ]
    deliver(workspace, lines[:2], "logs/1.jsonl")
    build(workspace)
    seal(workspace, NIGHT, judged=True)
    deliver(workspace, lines[2:], "logs/2.jsonl")
    build(workspace)
    seal(workspace, NIGHT, judged=False)
    found = overview(workspace)
    assert (found.trajectories, found.groups) == (9, 4)
    assert (found.groups_mixed, found.groups_all_pass, found.groups_all_fail, found.groups_unknown) == (1, 1, 1, 1)
    assert found.eligible_for == {"grpo": 8, "sft": 1}
    assert found.reasons == {"exact_tokens": 8, "other_model": 1}


def test_an_empty_lake_is_worth_nothing(workspace: Workspace) -> None:
    found = overview(workspace)
    assert (found.trajectories, found.groups, found.eligible_for) == (0, 0, {})
    assert seal(workspace, NIGHT, judged=True).why_nothing is not None


def test_wanted_names_tasks_without_siblings_or_spread(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", NO_HELD_OUT)
    deliver(workspace, [*attempts(2, task="flat"), *attempts(2, task="spread"), *attempts(1, task="alone")])
    build(workspace)
    seal(workspace, NIGHT, judged=True)
    rows = workspace.lake.read(GROUPS.name).to_pylist()
    spread = workspace.identity.task_key("sums", "spread")
    rewards = [
        {
            "trajectory_id": row["trajectory_id"],
            "group_id": row["group_id"],
            "rubric_hash": workspace.rubric()[1],
            "reward_key": "k",
            "reward": number * 1_000_000 if row["task_key"] == spread else 0,
            "sequence": 1,
        }
        for number, row in enumerate(rows)
    ]
    workspace.lake.append(REWARDS.name, pa.Table.from_pylist(rewards, schema=REWARDS.schema))
    for _ in range(2):
        assert want(workspace, NIGHT).reasons == {"no_siblings": 1, "no_spread": 1}
    wanted = sorted(rows_of(workspace, WANTED.name), key=lambda row: row["rank"])
    assert [(row["rank"], row["task_id"], row["reason"]) for row in wanted] == [
        (1, "alone", "no_siblings"),
        (2, "flat", "no_spread"),
    ]


def chain_of(workspace: Workspace, length: int) -> None:
    """Register checkpoints 1 … length, each the child of the one before, the last one champion."""
    rows = [
        {
            "checkpoint_id": f"ckp_{version}",
            "policy": "nightshift-agent",
            "version": version,
            "parent": f"ckp_{version - 1}" if version > 1 else None,
            "batches": [],
            "night": NIGHT,
            "path": f"runs/{version}",
        }
        for version in range(1, length + 1)
    ]
    workspace.lake.append(CHECKPOINTS.name, pa.Table.from_pylist(rows, schema=CHECKPOINTS.schema))
    decision = {"number": 1, "policy": "nightshift-agent", "decision": "promote", "champion": f"ckp_{length}", "decided_at": NOON}
    workspace.lake.append(DECISIONS.name, pa.Table.from_pylist([decision], schema=DECISIONS.schema))
