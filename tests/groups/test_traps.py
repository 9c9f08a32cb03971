"""Twelve traps of production logs, labelled: where each attempt must end, and why.

One log holds them all, together with groups that are sound; it is landed, grouped, scored and frozen by the real stages.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pipelines import invariants
from pipelines.batches import freeze
from pipelines.groups import seal
from pipelines.landing.land import land
from pipelines.rewards.score import score
from pipelines.schemas import DUPLICATES, GROUPS, LANES, TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call, rows_of
from tests.groups.test_sealing import chain_of
from tests.groups.test_splits import write_tasks
from tests.landing.lines import line, write_lines
from tests.request_texts import edited, request
from tests.sealed import fake_model
from tests.trajectories.test_same_attempt import gateway, harness

NIGHT = "2026-11-21"
CONFIG = """
[policy]
base_model = "{model}"
[harness]
name = "sums"
[judge]
groups_per_night = 0
[evaluation]
held_out = "held_out.jsonl"
held_out_share = 0.0
"""
NOW, LONG_AGO, NEVER = "nightshift-agent@6", "nightshift-agent@1", "nightshift-agent@99"
FOREIGN: dict[str, Any] = {"policy_version": None, "model": "gpt", "prompt_token_ids": None, "token_ids": None, "logprobs": None}
HELD = request(1, words=150)
TRAINED, WINNER = ("grpo", "trained"), ("sft", "lane_off")


def out(reason: str) -> tuple[str, str]:
    return "excluded", reason


def attempt(task: str, which: int, outcome: float | None = None, *, asked: str | None = None, **changes: Any) -> dict[str, Any]:
    """One attempt of the log, told apart by task and number."""
    given = {"policy_version": NOW, "outcome": outcome, "text": f"answer {task} {which}", **changes}
    line = {**call(f"{task}-{which}", task=task, **given), "attempt": which}
    if asked is not None:
        line["request"]["messages"][1]["content"] = asked
    return line


def with_tools(line: dict[str, Any], name: str) -> dict[str, Any]:
    line["request"]["tools"] = [{"type": "function", "function": {"name": name, "parameters": {}}}]
    return line


Labels = dict[tuple[str, int], tuple[str, str]]
"""By task and number of the attempt: lane and reason."""


def the_log() -> tuple[list[dict[str, Any]], Labels]:
    """The lines, and what must become of each attempt."""
    lines: list[dict[str, Any]] = []
    labels: Labels = {}

    def add(line: dict[str, Any], lane: str, reason: str) -> None:
        lines.append(line)
        labels[line["task_id"], line["attempt"]] = lane, reason

    # 1 the same task under other tools
    add(with_tools(attempt("tools", 0, 1.0), "search"), *TRAINED)
    add(with_tools(attempt("tools", 1, 0.0), "search"), *TRAINED)
    add(with_tools(attempt("tools", 2, 1.0), "browse"), *out("context_mismatch"))
    # 2 the same words under another task id
    for task in ("twin-a", "twin-b"):
        add(attempt(task, 0, 1.0, asked="Count the stars."), *out("no_siblings"))
    # 3 a call of one attempt that was tried again: the answer that was given up has no outcome of its own
    add(attempt("retry", 0, 1.0), *TRAINED)
    given_up = attempt("retry", 1)
    tried_again = attempt("retry", 1, 0.0, number=1, text="second try")
    tried_again["attempt_id"] = given_up["attempt_id"]
    lines.append(given_up)
    add(tried_again, *TRAINED)
    # 6 two honest attempts that came out alike
    add(attempt("alike", 0, 1.0, text="same"), *TRAINED)
    add(attempt("alike", 1, 1.0, text="same"), *TRAINED)
    add(attempt("alike", 2, 0.0), *TRAINED)
    # 7 two policies
    add(attempt("policies", 0, 1.0), *out("other_policy"))
    add(attempt("policies", 1, 1.0, **FOREIGN), *WINNER)
    add(attempt("policies-failed", 0, 0.0, **FOREIGN), *out("not_passed"))
    for number in range(4):
        add(attempt("foreign-failed", number, 0.0, **FOREIGN), *out("all_fail"))
    for number in range(2):
        # 8 stale, 9 an unknown version, both with spread
        add(attempt("stale", number, float(number), policy_version=LONG_AGO), *out("stale"))
        add(attempt("unknown", number, float(number), policy_version=NEVER), *out("unknown_policy_version"))
    # 10 a harness fault is no failed attempt
    add(attempt("fault", 0, 1.0), *out("no_siblings"))
    add(attempt("fault", 1, None, fault="timeout"), *out("harness_fault"))
    add(attempt("cut", 0, 0.0, response=cut_off()), *out("truncated"))
    # 11 a near-copy of a held-out task, with spread
    add(attempt("h1", 0, 1.0, asked=HELD, purpose="evaluation"), "held_out", "held_out_task")
    for number in range(2):
        add(attempt("near", number, float(number), asked=edited(HELD, 2)), *out("near_held_out"))
    return lines, labels


def cut_off() -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": "and so on and", "tool_calls": None}, "finish_reason": "length"}


def flood() -> list[dict[str, Any]]:
    """12: one task 500 times."""
    return [attempt("flood", number, float(number % 2), number=number % 1000) for number in range(500)]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("traps")
    write_tasks(folder / "w", "held_out.jsonl", ["h1"])
    workspace = make_workspace(folder / "w", CONFIG.format(model=fake_model(folder / "toy-model")))
    chain_of(workspace, 6)
    lines, _ = the_log()
    logs = [
        ("recorder", [line(row) for row in lines]),
        ("recorder", [line(row) for row in flood()]),
        ("openai_chat", gateway(1)),  # 5 both logs of one attempt
        ("claude_code", harness(1)),
        (
            "claude_code",
            harness(2, answers=2, end=False, session="exported-while-it-ran"),
        ),  # 4 a prefix of what was exported later
        ("claude_code", harness(2, session="exported-at-its-end")),
    ]
    for number, (name, content) in enumerate(logs):
        land(workspace, [write_lines(folder / f"{number}-{name}.jsonl", content)], format=name, day="2026-11-20")
        build(workspace)
    seal(workspace, NIGHT, judged=True)
    score(workspace, NIGHT)
    freeze(workspace, NIGHT)
    return workspace


def sorted_into(workspace: Workspace) -> dict[str, tuple[str, str]]:
    return {row["trajectory_id"]: (row["lane"], row["lane_reason"]) for row in rows_of(workspace, LANES.name)}


def test_each_attempt_ends_in_its_lane_for_its_reason(night: Workspace) -> None:
    lanes, labels = sorted_into(night), the_log()[1]
    found = {
        (row["task_id"], row["attempt"]): lanes[row["trajectory_id"]]
        for row in rows_of(night, TRAJECTORIES.name)
        if row["format"] == "recorder" and row["task_id"] != "flood" and not given_up(row)
    }
    assert found == labels


def given_up(row: dict[str, Any]) -> bool:
    return row["task_id"] == "retry" and "answer retry 1" in row["turns"]


def test_the_answer_that_was_given_up_has_no_verdict_and_is_no_failure(night: Workspace) -> None:
    (row,) = [row for row in rows_of(night, TRAJECTORIES.name) if given_up(row)]
    assert row["outcome"] is None and sorted_into(night)[row["trajectory_id"]] == out("no_verdict")


def test_one_task_500_times_takes_its_cap_and_no_more(night: Workspace) -> None:
    lanes = sorted_into(night)
    counts = Counter(lanes[row["trajectory_id"]] for row in rows_of(night, TRAJECTORIES.name) if row["task_id"] == "flood")
    cap, size = night.config.groups.cap_per_cluster, night.config.groups.size
    assert cap is not None and counts[TRAINED] == cap * size
    # a group of eight in which all came out alike has no spread
    assert set(counts) <= {TRAINED, out("cluster_full"), out("no_spread")} and counts[out("cluster_full")] > 400
    assert counts.total() == 500


def test_both_logs_of_one_attempt_and_what_was_exported_twice_are_one_trajectory_each(night: Workspace) -> None:
    others = [row for row in rows_of(night, TRAJECTORIES.name) if row["format"] != "recorder"]
    assert len(others) == 2
    kinds = Counter(row["kind"] for row in rows_of(night, DUPLICATES.name))
    assert kinds["other_log"] > 0 and kinds["unfinished"] > 0
    keepers = {row["trajectory_id"] for row in rows_of(night, DUPLICATES.name) if row["kind"] in ("other_log", "unfinished")}
    assert keepers == {row["trajectory_id"] for row in others}


def test_attempts_that_came_out_alike_are_both_members(night: Workspace) -> None:
    rows = [row for row in rows_of(night, TRAJECTORIES.name) if row["task_id"] == "alike"]
    assert Counter(Counter(row["content_id"] for row in rows).values()) == {1: 1, 2: 1}
    grouped = {row["trajectory_id"] for row in rows_of(night, GROUPS.name)}
    assert {row["trajectory_id"] for row in rows} <= grouped


@pytest.mark.parametrize("question", invariants.ALL)
def test_no_invariant_is_broken(question: Any, night: Workspace) -> None:
    finding = question(night)
    assert finding.num_looked_at > 0 and finding.broken == []


def test_fixture_is_what_it_says() -> None:
    """The held-out request and its copy differ, and the twins' do not."""
    lines, labels = the_log()
    asked = {row["task_id"]: row["request"]["messages"][1]["content"] for row in lines}
    assert asked["h1"] != asked["near"] and asked["twin-a"] == asked["twin-b"]
    assert len({reason for _, reason in labels.values()}) >= 12
