from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.batches import freeze
from pipelines.monitors import measure
from pipelines.rewards.score import score
from pipelines.schemas import CHECKPOINTS, DECISIONS, EVALUATION, SIGNALS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.judge_double import score_by
from tests.rewards.test_score import asking
from tests.sealed import CONFIG, Logged, fake_model, seal_groups

NIGHT, NEXT = "2026-11-20", "2026-11-21"
TASKS = {
    "mixed": [Logged("good", 1.0), Logged("bad", 0.0)],
    "pass": [Logged("good", 1.0), Logged("fine", 1.0)],
    "fail": [Logged("bad", 0.0), Logged("poor", 0.0)],
    "faulty": [Logged("bad", 0.0), Logged("gone", None, fault="timeout")],
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    config = CONFIG.format(model=fake_model(tmp_path / "toy-model")).replace("groups_per_night = 0", 'model = "openai/judge-1"')
    return make_workspace(tmp_path, config + "[groups]\nmin_judged = 2\n")


def add(workspace: Workspace, spec: Any, *rows: dict[str, Any]) -> None:
    workspace.lake.append(spec.name, pa.Table.from_pylist(list(rows), schema=spec.schema))


def checkpoint(workspace: Workspace, checkpoint_id: str, day: str, version: int = 1, **metrics: float) -> None:
    row = {"checkpoint_id": checkpoint_id, "policy": "agent", "version": version, "night": day, "path": "x", "batches": []}
    add(workspace, CHECKPOINTS, {**row, "marks": [], "metrics": json.dumps(metrics)})


def results(
    workspace: Workspace, checkpoint_id: str, day: str, passed: list[bool | None], eval_set: str = "held_out", **more: str
) -> None:
    rows = [
        {
            "checkpoint_id": checkpoint_id,
            "eval_set": eval_set,
            "eval_set_hash": more.get("eval_set_hash", "h"),
            "task_key": f"tsk_{number}",
            "attempt": 0,
            "passed": answer,
            "score": None if answer is None else int(answer) * 1_000_000,
            "night": day,
        }
        for number, answer in enumerate(passed)
    ]
    add(workspace, EVALUATION, *rows)


def signals(workspace: Workspace, day: str = NIGHT) -> dict[str, dict[str, Any]]:
    return {row["signal"]: row for row in workspace.lake.read(SIGNALS.name).to_pylist() if row["night"] == day}


def test_a_nights_numbers(workspace: Workspace) -> None:
    seal_groups(workspace, TASKS)
    judge = score_by(lambda text: 0.75 if "good" in text else 0.25)
    score(workspace, NIGHT, door=asking(lambda body: (200, "no") if "do fail" in str(body) else judge(body), []))
    frozen = freeze(workspace, NIGHT)
    checkpoint(workspace, "ckp_1", NIGHT, clip_fraction=0.1, ess=0.8)
    results(workspace, "base", NIGHT, [True, False, False, None])
    results(workspace, "ckp_1", NIGHT, [True, True, False, False])
    report = measure(workspace, NIGHT)
    assert report.alarms == []
    expected = {
        "groups_scored": 4.0,
        "share_without_spread": 0.75,
        "share_all_pass": 0.25,
        "share_all_fail": 0.5,
        "mean_reward": pytest.approx(3 / 7),
        "pass_rate": pytest.approx(3 / 7),
        "verifier_failure_share": 0.0,
        "judge_agreement": 1.0,
        "judge_failure_share": pytest.approx(1 / 3),
        "lane_share_grpo": 0.25,
        "lane_share_grpo_recomputed": 0.0,
        "lane_share_sft": 0.0,
        "lane_share_held_out": 0.0,
        "lane_share_audit": 0.0,
        "lane_share_excluded": 0.75,
        "harness_fault_share": 0.125,
        "clip_fraction": 0.1,
        "ess": 0.8,
        "held_out_champion": pytest.approx(1 / 3),
        "held_out_challenger": 0.5,
    }
    assert report.signals == expected
    rows = signals(workspace)
    assert {name: row["value"] for name, row in rows.items()} == expected
    assert all(row["state"] == "ok" and row["detail"] for row in rows.values())
    assert frozen.reasons["trained"] == 2


def test_a_night_without_anything_measures_nothing_and_raises_no_alarm(workspace: Workspace) -> None:
    report = measure(workspace, NIGHT)
    assert report.alarms == []
    assert {name for name, row in signals(workspace).items() if row["state"] != "unmeasured"} == {"groups_scored"}
    assert all((row["value"] is None) == (row["state"] == "unmeasured") for row in signals(workspace).values())


@pytest.mark.parametrize(
    ("metrics", "alarms"),
    [
        ({"clip_fraction": 0.59, "ess": 0.8}, ["clip_fraction"]),
        ({"clip_fraction": 0.1, "ess": 0.2}, ["ess"]),
        ({"clip_fraction": 0.5, "ess": 0.3}, []),
        ({}, []),
    ],
)
def test_a_run_out_of_its_bounds_is_an_alarm(workspace: Workspace, metrics: dict[str, float], alarms: list[str]) -> None:
    checkpoint(workspace, "ckp_1", NIGHT, **metrics)
    report = measure(workspace, NIGHT)
    assert [alarm.partition(":")[0] for alarm in report.alarms] == alarms
    assert sorted(name for name, row in signals(workspace).items() if row["state"] == "alarm") == alarms


def test_a_verifier_that_breaks_often_and_a_harness_that_fails_often_are_alarms(tmp_path: Path) -> None:
    config = CONFIG.format(model=fake_model(tmp_path / "toy-model"))
    workspace = make_workspace(
        tmp_path, config + '[[rewards.verifiers]]\nname = "desk"\nkind = "python"\nentry = "verifier.py:verify"\n'
    )
    (tmp_path / "verifier.py").write_text("def verify(task_id, turns):\n    return {'good': 1.0}[turns[-1]['content']]\n")
    gone = Logged("gone", None, fault="timeout")
    seal_groups(workspace, {"t": [Logged("good"), Logged("bad"), gone, gone, gone]})
    score(workspace, NIGHT)
    freeze(workspace, NIGHT)
    report = measure(workspace, NIGHT)
    assert [alarm.partition(":")[0] for alarm in report.alarms] == ["verifier_failure_share", "harness_fault_share"]
    assert (report.signals["verifier_failure_share"], report.signals["harness_fault_share"]) == (0.5, 0.6)


def test_measuring_again_after_the_decision_gives_the_same(workspace: Workspace) -> None:
    """Then the challenger is champion; what it was measured against still is the base model."""
    checkpoint(workspace, "ckp_1", NIGHT, clip_fraction=0.1, ess=0.8)
    results(workspace, "base", NIGHT, [True, False])
    results(workspace, "ckp_1", NIGHT, [True, True])
    before = measure(workspace, NIGHT).signals
    decision = {"number": 1, "policy": "agent", "decision": "promote", "reason": "better", "night": NIGHT}
    add(workspace, DECISIONS, {**decision, "challenger": "ckp_1", "measured_against": "base", "champion": "ckp_1"})
    assert measure(workspace, NIGHT).signals == before
    assert len(signals(workspace)) == len(before)
    # the next night trains nothing: the champion, measured the night before, is shown, and there is no challenger
    later = measure(workspace, NEXT)
    assert (later.signals["held_out_champion"], later.signals["held_out_challenger"]) == (1.0, None)
    assert len(signals(workspace)) == len(before)


def test_the_audit_set_and_older_held_out_sets_are_not_read(workspace: Workspace) -> None:
    checkpoint(workspace, "ckp_1", NEXT)
    results(workspace, "ckp_1", NIGHT, [False, False], eval_set_hash="z_older")
    results(workspace, "ckp_1", NEXT, [True, False], eval_set_hash="a_newer")
    results(workspace, "ckp_1", NEXT, [False] * 6, eval_set="audit", eval_set_hash="zz")
    assert measure(workspace, NEXT).signals["held_out_challenger"] == 0.5
