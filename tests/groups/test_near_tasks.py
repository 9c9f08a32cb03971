"""Near-copies of held-out tasks train nothing; what would be held out although a near-copy trained is no measure."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.doctor import digest
from pipelines.groups import assign_splits, eligibility, seal
from pipelines.groups.near_tasks import clusters, enter
from pipelines.replay import replay
from pipelines.schemas import GROUPS, NEAR, REQUESTS, SPLITS, TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call, deliver, rows_of
from tests.groups.test_splits import write_tasks
from tests.night_rows import freeze
from tests.requests import edited, request

DAY, NEXT = "2026-11-20", "2026-11-21"
SETS = '[harness]\nname = "sums"\n[evaluation]\nheld_out = "held_out.jsonl"\naudit = "audit.jsonl"\nheld_out_share = 0.0\n'
ISSUE = request(1, words=150)
COPY = edited(ISSUE, 2)
OTHER = request(2, words=150)


def ask(attempt: str, task: str, text: str, **changes: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Mend it."}, {"role": "user", "content": text}]
    return call(attempt, task=task, request={"messages": messages, "tools": None, "sampling": {"temperature": 1.0}}, **changes)


def prepare(folder: Path, more: str = "") -> Workspace:
    write_tasks(folder, "held_out.jsonl", ["h1"])
    write_tasks(folder, "audit.jsonl", ["u1"])
    return make_workspace(folder, SETS + more)


def take_in(workspace: Workspace, lines: list[dict[str, Any]], name: str, day: str = DAY) -> None:
    deliver(workspace, lines, f"logs/{name}.jsonl")
    build(workspace)
    assign_splits(workspace, day)


def reasons(workspace: Workspace) -> dict[str, str]:
    """Of each task the reason of its attempts that are no evaluation."""
    rows = rows_of(workspace, TRAJECTORIES.name)
    task = {row["trajectory_id"]: row["task_id"] for row in rows}
    found = eligibility(workspace).to_pylist()
    return {task[row["trajectory_id"]]: row["eligible_reason"] for row in found if row["eligible_reason"] != "evaluation_rollout"}


def near(workspace: Workspace) -> dict[str, tuple[str, str, bool]]:
    """By train task: the task that it is near to, its split, and whether it had trained."""
    names = {row["task_key"]: row["task_id"] for row in rows_of(workspace, TRAJECTORIES.name)}
    return {
        names[row["task_key"]]: (names[row["near_key"]], row["near_split"], row["trained"])
        for row in rows_of(workspace, NEAR.name)
    }


LINES = [
    ask("a", "h1", ISSUE, purpose="evaluation"),
    ask("b", "u1", OTHER, purpose="evaluation"),
    ask("c", "near_h", COPY),
    ask("d", "near_u", edited(OTHER, 1)),
    ask("e", "far", request(3, words=150)),
    ask("f", "short", " ".join(ISSUE.split()[:8])),
]


def test_near_copies_of_held_out_and_audit_tasks_are_excluded(tmp_path: Path) -> None:
    workspace = prepare(tmp_path)
    take_in(workspace, LINES, "1")
    assert near(workspace) == {"near_h": ("h1", "held_out", False), "near_u": ("u1", "audit", False)}
    expected = {"near_h": "near_held_out", "near_u": "near_held_out", "far": "exact_tokens", "short": "exact_tokens"}
    assert {task: reason for task, reason in reasons(workspace).items() if task in expected} == expected
    rows = {row["eligible_reason"]: row["eligible_for"] for row in eligibility(workspace).to_pylist()}
    assert rows["near_held_out"] == "excluded"
    assert seal(workspace, DAY, judged=True).near_held_out == 2


def test_it_does_not_matter_which_of_them_came_first_or_how_often(tmp_path: Path) -> None:
    found = []
    draws = random.Random(7)
    for name in ("one", "two", "three", "four"):
        workspace = prepare(tmp_path / name)
        lines = draws.sample(LINES, len(LINES))
        halves = (lines[:3], lines[3:], lines) if name != "one" else (lines,)
        for number, half in enumerate(halves):
            take_in(workspace, half, str(number))
        assert enter(workspace, DAY).near == 0
        tables = digest(workspace)
        found.append({table: tables[table] for table in (NEAR.name, REQUESTS.name, TRAJECTORIES.name, SPLITS.name)})
        assert len(rows_of(workspace, REQUESTS.name)) == 5
    assert found == found[:1] * len(found)


def test_near_copies_are_never_merged(tmp_path: Path) -> None:
    workspace = prepare(tmp_path)
    texts = [ISSUE, ISSUE, COPY, ISSUE.upper()]
    take_in(workspace, [ask(f"t{number}", f"task {number}", text) for number, text in enumerate(texts)], "1")
    rows = rows_of(workspace, TRAJECTORIES.name)
    assert len(rows) == 4 and len({row["task_key"] for row in rows}) == 4
    assert seal(workspace, DAY, judged=True).groups == 0 and rows_of(workspace, GROUPS.name) == []
    assert set(clusters(workspace, [row["task_key"] for row in rows]).column("cluster").to_pylist()) == {
        min(row["task_key"] for row in rows)
    }


def consume(workspace: Workspace, task: str) -> None:
    """A batch of the task's own attempts, as if they had trained."""
    rows = [row for row in rows_of(workspace, TRAJECTORIES.name) if row["task_id"] == task]
    group = {"group_id": f"grp_{task}", "role": "member", "window": DAY, "day": DAY, "sealed_night": DAY}
    members = [{**group, "trajectory_id": row["trajectory_id"], "task_key": row["task_key"]} for row in rows]
    workspace.lake.append(GROUPS.name, pa.Table.from_pylist(members, schema=GROUPS.schema))
    freeze(workspace, f"bat_{task}", night=DAY, groups=[f"grp_{task}"])


def test_what_is_near_a_trained_task_is_not_drawn_for_evaluation(tmp_path: Path) -> None:
    def config(share: float) -> str:
        return f"[evaluation]\nheld_out_share = {share}\naudit_share = 0.0\n"

    workspace = make_workspace(tmp_path, config(0.0))
    take_in(workspace, [ask("a", "trained", ISSUE), ask("b", "logged", OTHER)], "1")
    consume(workspace, "trained")
    workspace = make_workspace(tmp_path, config(0.99))
    lines = [ask(f"c{number}", f"c{number}", edited(ISSUE, 1, seed=number)) for number in range(20)]
    lines += [ask(f"d{number}", f"d{number}", edited(OTHER, 1, seed=number)) for number in range(20)]
    take_in(workspace, lines, "2", NEXT)
    names = {row["task_key"]: row["task_id"] for row in rows_of(workspace, TRAJECTORIES.name)}
    splits = {names[row["task_key"]]: (row["split"], row["source"]) for row in rows_of(workspace, SPLITS.name)}
    assert {splits[f"c{number}"] for number in range(20)} <= {("train", "near_trained"), ("train", "drawn")}
    assert sum(splits[f"c{number}"][1] == "near_trained" for number in range(20)) >= 15
    # a near-copy that was logged and has not trained gives way to the evaluation
    assert sum(splits[f"d{number}"][0] == "held_out" for number in range(20)) >= 15
    assert near(workspace)["logged"][1:] == ("held_out", False)
    assert "trained" not in near(workspace)
    assert reasons(workspace)["c0"] == "exact_tokens"


def test_a_named_set_that_is_near_what_trained_is_counted_and_trains_no_more(tmp_path: Path) -> None:
    workspace = prepare(tmp_path)
    take_in(workspace, [ask("a", "trained", ISSUE)], "1")
    consume(workspace, "trained")
    take_in(workspace, [ask("b", "h1", COPY, purpose="evaluation")], "2", NEXT)
    assert near(workspace) == {"trained": ("h1", "held_out", True)}
    sealed = seal(workspace, NEXT, judged=True)
    assert (sealed.near_held_out, sealed.near_trained) == (1, 1)
    assert reasons(workspace)["trained"] == "near_held_out"


def test_an_attempt_that_begins_with_other_words_counts_for_its_task(tmp_path: Path) -> None:
    workspace = prepare(tmp_path)
    take_in(workspace, [ask("a", "h1", ISSUE, purpose="evaluation"), ask("b", "t", OTHER)], "1")
    assert near(workspace) == {}
    take_in(workspace, [ask("c", "t", COPY)], "2", NEXT)
    assert near(workspace) == {"t": ("h1", "held_out", False)}
    assert set(reasons(workspace).values()) == {"held_out_task", "near_held_out"}


def test_the_threshold_is_raised_lowered_and_switched_off(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, "[groups]\nnear_threshold = 0.95\n")
    lines = [ask("a", "h1", ISSUE, purpose="evaluation"), ask("b", "t", edited(ISSUE, 2))]
    take_in(workspace, lines, "1")
    assert near(workspace) == {}
    workspace = prepare(tmp_path, "[groups]\nnear_threshold = 0.8\n")
    assign_splits(workspace, NEXT)
    assert reasons(workspace)["t"] == "near_held_out"
    workspace = prepare(tmp_path, "[groups]\nnear_threshold = 0.95\n")
    assign_splits(workspace, NEXT)
    assert reasons(workspace)["t"] == "exact_tokens"
    written = '[groups]\nnear_threshold = "off"\n'
    with pytest.raises(Exception, match="near_threshold"):
        prepare(tmp_path / "other", written)


def test_signatures_of_other_settings_are_counted_until_a_replay(tmp_path: Path) -> None:
    workspace = prepare(tmp_path)
    lines = [ask("a", "h1", ISSUE, purpose="evaluation"), ask("b", "t", COPY)]
    deliver(workspace, lines, "logs/1.jsonl")
    build(workspace)
    workspace = prepare(tmp_path, "[groups]\nnear_permutations = 64\n")
    assert seal(workspace, DAY, judged=True).other_making == 2
    assert near(workspace) == {}
    changed = replay(workspace, every=True, apply=True)
    assert changed.columns == {"request_signature": 2} and changed.stale_groups == []
    assert seal(workspace, DAY, judged=True).other_making == 0
    assert near(workspace) == {"t": ("h1", "held_out", False)}


def test_clusters_are_named_by_their_smallest_task(tmp_path: Path) -> None:
    workspace = prepare(tmp_path)
    texts = {"a": ISSUE, "b": COPY, "c": OTHER, "d": edited(OTHER, 1), "e": "too short to tell"}
    take_in(workspace, [ask(task, task, text) for task, text in texts.items()], "1")
    key = {row["task_id"]: row["task_key"] for row in rows_of(workspace, TRAJECTORIES.name)}
    found = clusters(workspace, list(key.values()))
    by_task = dict(zip(found.column("task_key").to_pylist(), found.column("cluster").to_pylist(), strict=True))
    assert by_task[key["a"]] == by_task[key["b"]] == min(key["a"], key["b"])
    assert by_task[key["c"]] == by_task[key["d"]] == min(key["c"], key["d"])
    assert by_task[key["e"]] == key["e"]
    assert clusters(workspace, list(key.values())[::-1] * 2).equals(found)
    assert clusters(workspace, [key["b"], key["c"]]).column("cluster").to_pylist() == sorted([key["b"], key["c"]])
