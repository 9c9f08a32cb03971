"""The split of a task is assigned once for ever, evaluation sets first (I8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.errors import ConfigError
from pipelines.groups import assign_splits, eligibility
from pipelines.schemas import SPLITS
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call, deliver, rows_of

DAY = "2026-11-20"
SETS = '[harness]\nname = "sums"\n[evaluation]\nheld_out = "held_out.jsonl"\naudit = "audit.jsonl"\n'


def write_tasks(folder: Path, name: str, ids: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"task_id": task_id}) + "\n" for task_id in ids), encoding="utf-8")


def splits(workspace: Workspace) -> dict[str, tuple[str, str]]:
    return {row["task_key"]: (row["split"], row["source"]) for row in rows_of(workspace, SPLITS.name)}


def test_evaluation_sets_come_before_the_draw(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, SETS + "held_out_share = 0.0\n")
    write_tasks(tmp_path, "held_out.jsonl", ["h1", "h2"])
    write_tasks(tmp_path, "audit.jsonl", ["u1"])
    deliver(workspace, [call("a", task="h1"), call("b", task="t1")])
    build(workspace)
    assert assign_splits(workspace, DAY) == {"audit": 1, "held_out": 2, "train": 1}
    found = splits(workspace)
    assert found[workspace.identity.task_key("sums", "h1")] == ("held_out", "eval_set")
    assert found[workspace.identity.task_key("sums", "t1")] == ("train", "drawn")


def test_the_first_assignment_wins_for_ever(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, SETS + "held_out_share = 0.0\n")
    write_tasks(tmp_path, "held_out.jsonl", ["h1"])
    write_tasks(tmp_path, "audit.jsonl", [])
    deliver(workspace, [call(f"a{number}", task=str(number)) for number in range(20)])
    build(workspace)
    assign_splits(workspace, DAY)
    before = splits(workspace)

    changed = make_workspace(tmp_path, SETS + "held_out_share = 0.99\n")
    deliver(changed, [call(f"b{number}", task=f"new{number}") for number in range(20)], "logs/2.jsonl")
    build(changed)
    assign_splits(changed, "2026-11-21")
    after = splits(changed)
    assert {key: after[key] for key in before} == before
    drawn = [split for key, (split, _) in after.items() if key not in before]
    assert len(drawn) == 20 and drawn.count("held_out") >= 15


def test_the_draw_follows_the_shares_and_not_the_order(tmp_path: Path) -> None:
    config = "[evaluation]\nheld_out_share = 0.3\naudit_share = 0.2\n"
    lines = [call(f"a{number}", task=str(number)) for number in range(300)]
    found = []
    for name, delivered in (("one", lines), ("two", lines[::-1])):
        workspace = make_workspace(tmp_path / name, config)
        for half in (delivered[:150], delivered[150:]):
            deliver(workspace, half, f"logs/{half[0]['task_id']}.jsonl")
            build(workspace)
            counts = assign_splits(workspace, DAY)
        found.append(splits(workspace))
        assert counts["held_out"] == pytest.approx(90, abs=30)
        assert counts["audit"] == pytest.approx(60, abs=30)
    assert found[0] == found[1]


def test_held_out_tasks_are_eligible_for_nothing_else(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, SETS + "held_out_share = 0.0\n")
    write_tasks(tmp_path, "held_out.jsonl", ["h1"])
    write_tasks(tmp_path, "audit.jsonl", ["u1"])
    lines = [call("a", task="h1"), call("b", task="u1"), call("c", task="t1"), call("d", task="t1", purpose="evaluation")]
    deliver(workspace, lines)
    build(workspace)
    assert {row["eligible_reason"] for row in eligibility(workspace).to_pylist()} == {"split_pending", "evaluation_rollout"}
    assign_splits(workspace, DAY)
    found = {(row["eligible_for"], row["eligible_reason"]) for row in eligibility(workspace).to_pylist()}
    assert found == {
        ("held_out", "held_out_task"),
        ("audit", "audit_task"),
        ("grpo", "exact_tokens"),
        ("excluded", "evaluation_rollout"),
    }


def test_a_task_that_may_have_been_trained_on_is_refused_in_a_set(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, SETS + "held_out_share = 0.0\n")
    write_tasks(tmp_path, "held_out.jsonl", ["h1"])
    write_tasks(tmp_path, "audit.jsonl", [])
    deliver(workspace, [call("a", task="3")])
    build(workspace)
    assign_splits(workspace, DAY)
    before = splits(workspace)
    write_tasks(tmp_path, "held_out.jsonl", ["h1", "3"])
    with pytest.raises(ConfigError, match=r"1 task\(s\) of held_out\.jsonl \(first: 3\) were in the train split"):
        assign_splits(workspace, "2026-11-21")
    assert splits(workspace) == before


def test_a_task_in_both_sets_is_refused(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, SETS)
    write_tasks(tmp_path, "held_out.jsonl", ["x"])
    write_tasks(tmp_path, "audit.jsonl", ["x"])
    with pytest.raises(ConfigError, match="x stands in the held_out set and in the audit set"):
        assign_splits(workspace, DAY)


@pytest.mark.parametrize("content", [None, '{"no": 1}\n', "[1]\n", '{"task_id": "a"}\n{"task_id":\n'])
def test_an_unreadable_set_is_named(content: str | None, tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path, SETS)
    write_tasks(tmp_path, "audit.jsonl", [])
    if content is not None:
        (tmp_path / "held_out.jsonl").write_text(content)
    with pytest.raises(ConfigError, match=r"held_out\.jsonl"):
        assign_splits(workspace, DAY)
