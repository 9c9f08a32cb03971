"""tau2-bench simulations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import Attempt, SourceRecord
from pipelines.landing.tau2_bench import Tau2Bench
from tests.landing.formats.whole_files import read, read_folder, refused, shape
from tests.landing.lines import attempts as attempts_of
from tests.landing.lines import stored

GENERATED = {"raw_data": {"id": "chatcmpl-1", "model": "small-1"}, "usage": {"prompt_tokens": 9, "completion_tokens": 2}}


def simulation(**changes: Any) -> dict[str, Any]:
    call = {"id": "c1", "name": "look_up", "arguments": {"order": 5}, "requestor": "assistant"}
    own = {"id": "u1", "name": "restart", "arguments": {}, "requestor": "user"}
    return {
        "id": "sim-1",
        "task_id": "20",
        "timestamp": "2026-06-30T11:00:09.5",
        "start_time": "2026-06-30T11:00:00",
        "end_time": "2026-06-30T11:00:09",
        "termination_reason": "user_stop",
        "agent_cost": 0.25,
        "reward_info": {"reward": 1.0},
        "messages": [
            {"role": "assistant", "content": "Hi! How can I help you today?", "raw_data": None},
            {"role": "user", "content": "My line is dead.", **GENERATED},
            {"role": "assistant", "content": None, "tool_calls": [call], **GENERATED},
            {"role": "tool", "id": "c1", "content": "found", "requestor": "assistant"},
            {"role": "assistant", "content": "Restart it, please.", **GENERATED},
            {"role": "user", "content": None, "tool_calls": [own], **GENERATED},
            {"role": "tool", "id": "u1", "content": "restarted", "requestor": "user"},
            {"role": "user", "content": "Done. ###STOP###", **GENERATED},
        ],
        "trial": 3,
        "seed": 1,
        **changes,
    }


def results(*simulations: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-06-30T12:00:00",
        "info": {
            "num_trials": 4,
            "user_info": {"implementation": "user_simulator", "llm": "big"},
            "agent_info": {"implementation": "llm_agent", "llm": "small"},
            "environment_info": {"domain_name": "telecom", "policy": "# Policy", "tool_defs": {"look_up": {"name": "look_up"}}},
        },
        "tasks": [{"id": "20", "user_scenario": {}}, {"id": "21"}],
        "simulations": list(simulations) or [simulation()],
        **changes,
    }


VOICE = simulation(messages=[], ticks=[{"tick_id": 0, "agent_chunk": {"role": "assistant", "contains_speech": True}}])
SPLIT = {name: value for name, value in results().items() if name != "simulations"}
FORMAT = Tau2Bench()
FILES = [
    json.dumps(results()).encode(),
    json.dumps(results(), indent=4).encode()[:900],
    json.dumps(simulation()).encode(),
    json.dumps(VOICE).encode(),
    json.dumps(SPLIT).encode(),
]
FOLDERS = {"tau2_bench"}


def attempt_of(value: Any) -> Attempt:
    (attempt,) = attempts_of(FORMAT, value)
    return attempt


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
    return path


def test_a_results_file_is_a_record_per_simulation_with_what_it_says_of_the_run(tmp_path: Path) -> None:
    path = write(tmp_path / "results.json", results(simulation(), simulation(id="sim-2", trial=0, reward_info={"reward": 0.0})))
    attempts, left = read(FORMAT, path)
    assert left == {} and [(attempt.attempt, attempt.outcome) for attempt in attempts] == [(3, 1.0), (0, 0.0)]
    attempt = attempts[0]
    assert shape(attempt) == "sauAtAu"  # the greeting is fixed text; the user's own calls never reach the agent
    assert [turn["content"] for turn in attempt.turns] == [
        "# Policy",
        "Hi! How can I help you today?",
        "My line is dead.",
        None,
        "found",
        "Restart it, please.",
        "Done. ###STOP###",
    ]
    assert attempt.turns[3]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"order":5}'}}
    ]
    assert attempt.turns[4]["tool_call_id"] == "c1"
    assert (attempt.task_id, attempt.model, attempt.outcome_source) == ("telecom/20", "small", "reward_info.reward")
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd) == (18, 4, 0.25)
    assert attempt.tools == [{"name": "look_up"}]
    assert attempt.started_at is not None and attempt.started_at.isoformat() == "2026-06-30T11:00:00+00:00"


def test_a_simulation_in_a_file_of_its_own() -> None:
    attempt = attempt_of(simulation(policy="# Own policy"))
    assert (attempt.task_id, attempt.model, attempt.turns[0]["content"]) == ("20", "small-1", "# Own policy")


def test_a_results_file_without_simulations_belongs_to_no_attempt(tmp_path: Path) -> None:
    (piece,) = FORMAT.split(write(tmp_path / "results.json", SPLIT))
    assert isinstance(piece, SourceRecord) and piece.skip_reason == "meta"


def test_where_nothing_shows_generation_only_the_greeting_is_fixed_text() -> None:
    bare = [{key: value for key, value in m.items() if key not in GENERATED} for m in simulation()["messages"]]
    attempt = attempt_of(simulation(messages=bare))
    assert shape(attempt) == "auAtAu"
    assert (attempt.model, attempt.num_prompt_tokens) == (None, None)


def test_the_fullest_version_of_a_simulation_counts() -> None:
    unscored, scored = simulation(reward_info=None), simulation()
    bundle = FORMAT.attempts(stored(FORMAT, unscored, scored))
    assert [attempt.outcome for attempt in bundle.attempts] == [1.0]
    assert bundle.left == {"rec-0": ("", "superseded")}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"termination_reason": "max_steps"}, None),
        ({"termination_reason": "too_many_errors"}, None),
        ({"termination_reason": "agent_error"}, None),
        ({"termination_reason": "agent_error", "skipped": True}, "harness_error"),
        ({"termination_reason": "agent_error", "messages": []}, "harness_error"),
        ({"termination_reason": "user_error"}, "harness_error"),
        ({"termination_reason": "infrastructure_error"}, "harness_error"),
        ({"termination_reason": "timeout"}, "timeout"),
        ({"termination_reason": None}, "aborted"),
    ],
)
def test_which_ends_are_faults(changes: dict[str, Any], fault: str | None) -> None:
    attempt = attempt_of(simulation(**{"reward_info": {"reward": 0.0}, **changes}))
    assert (attempt.fault, attempt.outcome) == (fault, None if fault else 0.0)


def test_no_reward_is_neither_a_fault_nor_a_failure() -> None:
    attempt = attempt_of(simulation(reward_info=None))
    assert (attempt.fault, attempt.outcome, attempt.outcome_source) == (None, None, None)


def test_text_of_a_voice_run_is_turns_that_nobody_sampled() -> None:
    ticks = [
        {"agent_chunk": {"role": "assistant", "content": "Hel"}, "user_chunk": {"role": "user", "contains_speech": False}},
        {"agent_chunk": {"role": "assistant", "content": "lo."}, "user_chunk": None},
        {
            "agent_chunk": {"role": "assistant", "content": None},
            "user_chunk": {"role": "user", "content": "Order 5."},
        },
        {
            "agent_chunk": {"role": "assistant"},
            "agent_tool_calls": [{"id": "c1", "name": "look_up", "arguments": {"order": 5}}],
            "agent_tool_results": [{"id": "c1", "role": "tool", "content": "found"}],
        },
    ]
    attempt = attempt_of(simulation(messages=None, ticks=ticks))
    assert shape(attempt) == "auat"
    assert [turn["content"] for turn in attempt.turns] == ["Hello.", "Order 5.", None, "found"]


def test_several_results_of_tools_in_one_message() -> None:
    both = {
        "role": "tool",
        "tool_messages": [{"role": "tool", "id": "a", "content": "1"}, {"role": "tool", "id": "b", "content": "2"}],
    }
    attempt = attempt_of(simulation(messages=[{"role": "user", "content": "Q"}, both]))
    assert [(turn["role"], turn.get("tool_call_id")) for turn in attempt.turns] == [("user", None), ("tool", "a"), ("tool", "b")]


@pytest.mark.parametrize("changes", [{"task_id": None}, {"messages": None}, {"messages": ["x"]}, {"messages": [{"role": 5}]}])
def test_a_simulation_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert refused(FORMAT, tmp_path / "sim.json", simulation(**changes)).reason == "wrong_shape"
    assert refused(FORMAT, tmp_path / "results.json", results(simulation(**changes))).reason == "wrong_shape"


def test_real_files(shared_logs: Path) -> None:
    found = read_folder(FORMAT, shared_logs / "tau2_bench")
    facts = sorted((attempt.task_id, attempt.attempt, attempt.outcome, attempt.fault) for (attempt,) in found.values())
    assert facts == [("20", 0, None, None), ("40", 0, None, None)]
