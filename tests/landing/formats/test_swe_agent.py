"""SWE-agent trajectories and the reports about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import Attempt
from pipelines.landing.swe_agent import SweAgent
from tests.landing.formats.whole_files import read, read_folder, refused, shape, split


def run(**changes: Any) -> dict[str, Any]:
    """A new .traj."""
    call = {"index": 1, "id": "t1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    step = {"action": "ls", "observation": "a.py", "response": "Look.", "thought": "Look.", "state": {}}
    return {
        "trajectory": [step],
        "history": [
            {"role": "system", "content": "You are helpful.", "agent": "main", "message_type": "system_prompt"},
            {"role": "user", "content": "A demonstration.", "agent": "main", "is_demo": True},
            {"role": "assistant", "content": "Shown.", "agent": "main", "is_demo": True},
            {"role": "user", "content": [{"type": "text", "text": "Mend it."}], "agent": "main"},
            {"role": "assistant", "content": "Look.", "thought": "Look.", "action": "ls", "agent": "main", "tool_calls": [call]},
            {"role": "tool", "content": [{"type": "text", "text": "a.py"}], "agent": "main", "tool_call_ids": ["t1"]},
            {"role": "assistant", "content": "Done.", "agent": "main", "tool_calls": None},
        ],
        "info": {
            "exit_status": "submitted",
            "submission": "diff",
            "model_stats": {"instance_cost": 0.5, "tokens_sent": 100, "tokens_received": 7, "api_calls": 2},
        },
        "replay_config": json.dumps({"agent": {"model": {"name": "gpt-4o"}}}),
        "environment": "main",
        **changes,
    }


def old() -> dict[str, Any]:
    return {
        "environment": "swe_main",
        "trajectory": [
            {"action": "ls\n", "observation": "a", "response": "Look.\n```\nls\n```", "state": "{}", "thought": "Look."}
        ],
        "history": [
            {"role": "system", "content": "S", "agent": "primary"},
            {"role": "user", "content": "Here is a demonstration", "agent": "primary", "is_demo": True},
            {"role": "user", "content": "Q", "agent": "primary"},
            {"role": "assistant", "content": "Look.\n```\nls\n```", "agent": "primary", "action": "ls\n", "thought": "Look."},
            {"role": "user", "content": "a", "agent": "primary"},
        ],
        "info": {"model_stats": {"total_cost": 9.0, "instance_cost": 0.2, "tokens_sent": 10, "tokens_received": 2}},
    }


def report(resolved: Any = True) -> dict[str, Any]:
    return {"patch_is_None": False, "patch_exists": True, "patch_successfully_applied": True, "resolved": resolved}


DEMO = {"history": run()["history"]}
FORMAT = SweAgent()
FILES = [
    json.dumps(run()).encode(),
    json.dumps(old(), indent=2).encode(),
    json.dumps(run()).encode()[:300],
    json.dumps(DEMO).encode(),
    json.dumps(report()).encode(),
    json.dumps({"org__repo-1": report(False)}).encode(),
]
FOLDERS = {"swe_agent_traj"}


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def attempt_of(tmp_path: Path, value: Any, name: str = "org__repo-1.traj") -> Attempt:
    (attempt,), left = read(FORMAT, write(tmp_path / name, value))
    assert left == {}
    return attempt


def test_the_history_is_the_attempt_and_the_demonstration_is_not_sampled(tmp_path: Path) -> None:
    attempt = attempt_of(tmp_path, run())
    assert shape(attempt) == "suauAtA"
    assert [turn.get("is_demo") for turn in attempt.turns] == [None, True, True, None, None, None, None]
    assert attempt.turns[3]["content"] == "Mend it."
    assert attempt.turns[4]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
    assert attempt.turns[5]["tool_call_id"] == "t1" and attempt.turns[5]["content"] == "a.py"
    assert (attempt.task_id, attempt.model) == ("org__repo-1", "gpt-4o")
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd) == (100, 7, 0.5)
    # submitted says nothing about success
    assert (attempt.outcome, attempt.outcome_source, attempt.fault) == (None, None, None)


def test_an_old_file_without_an_exit_status_was_killed(tmp_path: Path) -> None:
    attempt = attempt_of(tmp_path, old())
    assert shape(attempt) == "suuAu"
    assert (attempt.fault, attempt.model, attempt.cost_usd) == ("aborted", None, 0.2)


def test_a_run_that_was_read_while_it_went_on_is_one_attempt(tmp_path: Path) -> None:
    early = run(history=run()["history"][:6], info={})
    begun = run(history=run()["history"][:4], info={})  # by another attempt, for all that anybody knows
    paths = [write(tmp_path / name / "org__repo-1.traj", value) for name, value in (("a", early), ("b", run()), ("c", begun))]
    attempts, left = read(FORMAT, *paths)
    assert sorted((shape(attempt), attempt.fault) for attempt in attempts) == [("suau", "aborted"), ("suauAtA", None)]
    assert [kind for _, kind in left.values()] == ["superseded"]


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        ("submitted", None),
        ("submitted (exit_cost)", None),
        ("exit_context", None),
        ("exit_format", None),
        ("exit_error", "harness_error"),
        ("submitted (exit_environment_error)", "harness_error"),
        ("exit_api", "model_error"),
        (None, "aborted"),
        ("", "aborted"),
    ],
)
def test_which_ends_are_faults(tmp_path: Path, status: str | None, fault: str | None) -> None:
    assert attempt_of(tmp_path, run(info={"exit_status": status})).fault == fault


def test_replays_and_demonstrations_have_no_sampled_turn(tmp_path: Path) -> None:
    stats = {"exit_status": "submitted", "model_stats": {"instance_cost": 0, "tokens_sent": 0, "tokens_received": 0}}
    assert attempt_of(tmp_path, run(info=stats)).num_sampled_turns == 0
    replayed = attempt_of(tmp_path, run(replay_config={"agent": {"model": {"name": "replay"}}}))
    assert (replayed.num_sampled_turns, replayed.model, replayed.num_prompt_tokens) == (0, None, None)
    demo = attempt_of(tmp_path, DEMO, "shown.traj")
    assert (demo.num_sampled_turns, demo.fault) == (0, None) and all(turn["is_demo"] for turn in demo.turns)


@pytest.mark.parametrize("resolved", [True, False])
def test_the_only_report_is_the_outcome_of_the_only_attempt(tmp_path: Path, resolved: bool) -> None:
    traj = write(tmp_path / "runs" / "org__repo-1.traj", run())
    flat = write(tmp_path / "logs" / "org__repo-1" / "report.json", report(resolved))
    (attempt,), left = read(FORMAT, traj, flat)
    assert (attempt.outcome, attempt.outcome_source, left) == (float(resolved), "report.resolved", {})
    assert len(attempt.record_ids) == 2
    named = write(tmp_path / "elsewhere" / "report.json", {"org__repo-1": report(resolved)})
    (attempt,), left = read(FORMAT, traj, named)
    assert attempt.outcome == float(resolved) and left == {}


def test_a_report_without_a_verdict_and_one_on_a_killed_run_are_no_outcome(tmp_path: Path) -> None:
    traj = write(tmp_path / "org__repo-1.traj", run())
    (attempt,), _ = read(FORMAT, traj, write(tmp_path / "a" / "org__repo-1" / "report.json", report(None)))
    assert (attempt.outcome, attempt.fault) == (None, "evaluation_failed")
    traj = write(tmp_path / "org__repo-1.traj", run(info={}))
    (attempt,), _ = read(FORMAT, traj, write(tmp_path / "a" / "org__repo-1" / "report.json", report(False)))
    assert (attempt.outcome, attempt.fault) == (None, "aborted")


def test_of_several_attempts_each_has_its_neighbours_report(tmp_path: Path) -> None:
    name = "org__repo-1"
    one = write(tmp_path / "run1" / name / f"{name}.traj", run())
    two = write(tmp_path / "run2" / name / f"{name}.traj", run(environment="other"))
    of_two = write(tmp_path / "run2" / "evaluation" / name / "report.json", {name: report(False)})
    of_one = write(tmp_path / "run1" / name / "report.json", {name: report(True)})
    attempts, left = read(FORMAT, one, two, of_two, of_one)
    assert {attempt.record_ids[0]: attempt.outcome for attempt in attempts} == {f"{one}#0": 1.0, f"{two}#0": 0.0}
    assert left == {}


def test_where_nobody_can_tell_the_outcome_stays_unknown(tmp_path: Path) -> None:
    name = "org__repo-1"
    one = write(tmp_path / "run1" / f"{name}.traj", run())
    two = write(tmp_path / "run2" / f"{name}.traj", run(environment="other"))
    verdict = write(tmp_path / "logs" / name / "report.json", report(True))
    attempts, left = read(FORMAT, one, two, verdict)
    assert [attempt.outcome for attempt in attempts] == [None, None]
    assert left == {f"{verdict}#0": (None, "unmatched")}
    attempts, left = read(FORMAT, verdict)
    assert attempts == [] and list(left.values()) == [(None, "unmatched")]


@pytest.mark.parametrize(
    "value", [run(history="none"), run(trajectory={}), run(history=["x"]), run(history=[{"role": 1, "content": "x"}]), [1]]
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, value: Any) -> None:
    assert refused(FORMAT, tmp_path / "x.traj", value).reason == "wrong_shape"


def test_the_instance_comes_from_the_name_of_the_file(tmp_path: Path) -> None:
    for name in ("a__b-1.traj", "a__b-1.traj.json"):
        (record,) = split(FORMAT, write(tmp_path / name, run()))
        assert (record.value["instance_id"], record.bundle_ref) == ("a__b-1", "a__b-1")


def test_real_files(shared_logs: Path) -> None:
    found = read_folder(FORMAT, shared_logs / "swe_agent_traj")
    sampled = {name: sum(attempt.num_sampled_turns for attempt in attempts) for name, attempts in found.items()}
    assert sampled.pop("pandas-dev__pandas.95280573.pr_53856.traj") == 17
    assert sampled.pop("pydantic__pydantic.acb0f10f.pr_8316.traj") == 22
    assert set(sampled.values()) == {0}  # replays, demonstrations, reports
    assert all(attempt.outcome is None and attempt.fault is None for attempts in found.values() for attempt in attempts)
