"""OpenHands before its SDK: rows, trajectories, dumps of messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing import registry
from pipelines.landing.openhands import OpenHands
from tests.landing.bundles import attempts_of, bad_of, one, told
from tests.landing.lines import line, write_lines

FORMAT = OpenHands()
FOLDERS = {"openhands", "openhands_litellm_completions"}


def event(number: int, source: str, **fields: Any) -> dict[str, Any]:
    return {"id": number, "timestamp": f"2026-11-20T10:00:{number:02}.000001", "source": source, "message": "", **fields}


def act(number: int, action: str, source: str = "agent", called: Any = None, **args: Any) -> dict[str, Any]:
    return event(number, source, action=action, args=args, **({"tool_call_metadata": called} if called else {}))


def observe(number: int, cause: int, kind: str, content: str, called: Any = None, **extras: Any) -> dict[str, Any]:
    metadata = {"tool_call_metadata": called} if called else {}
    return event(number, "agent", cause=cause, observation=kind, content=content, extras=extras, **metadata)


def answer(name: str, call: str, *calls: str, text: str | None = "I look.") -> dict[str, Any]:
    """What the action of `call` says of the answer that it is a part of."""
    tool_calls = [
        {"id": each, "type": "function", "function": {"name": "bash", "arguments": f'{{"c":"{each}"}}'}} for each in calls
    ]
    response = {
        "id": name,
        "model": "m-1",
        "choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "content": text, "tool_calls": tool_calls}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2},
    }
    return {"function_name": "bash", "tool_call_id": call, "total_calls_in_response": len(calls), "model_response": response}


TOOLS = [{"type": "function", "function": {"name": "bash"}}]
HISTORY = [
    act(0, "system", content="You are OpenHands.", tools=TOOLS),
    act(1, "message", "user", content="Look."),
    act(2, "recall", "user", query="Look."),
    observe(3, 2, "recall", "a workspace"),
    event(4, "environment", observation="agent_state_changed", content="", extras={"agent_state": "running"}),
    act(5, "run", called=answer("r1", "c1", "c1", "c2"), command="c1", thought="I look."),
    act(6, "run", called=answer("r1", "c2", "c1", "c2"), command="c2"),
    observe(7, 5, "run", "a.txt", answer("r1", "c1", "c1", "c2"), metadata={"prefix": "", "suffix": "\n[exit code 0]"}),
    observe(8, 6, "run", "b.txt", answer("r1", "c2", "c1", "c2")),
    event(9, "environment", observation="null", content="", extras={}),
    act(10, "finish", called=answer("r2", "c3", "c3", text="Done."), outputs={}),
]
ROW = {
    "instance_id": "repo__1",
    "instance": {"base_commit": "abc"},
    "instruction": "Look.",
    "metadata": {"agent_class": "CodeActAgent", "llm_config": {"model": "m-0", "api_key": "secret-of-the-test"}},
    "history": HISTORY,
    "test_result": {"git_patch": "diff"},
    "metrics": {"accumulated_cost": 0.75},
    "error": None,
}
RESOLVED = {
    "issue": {"owner": "o", "repo": "r", "number": 7, "title": "t"},
    "base_commit": "abc",
    "history": HISTORY,
    "git_patch": "diff",
    "success": True,
    "result_explanation": "[]",
    "error": None,
}
DUMP = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "content": "Yes."}]
FILES = [line(ROW), line(RESOLVED), json.dumps(HISTORY, indent=2).encode(), json.dumps({"trajectory": HISTORY}).encode()]
EXPECTED = [
    ("system", False, "You are OpenHands."),
    ("user", False, "Look."),
    ("assistant", True, "I look."),
    ("tool", False, "a.txt\n[exit code 0]"),
    ("tool", False, "b.txt"),
    ("assistant", True, "Done."),
]


def document(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return path


def test_one_answer_with_two_calls_is_one_turn(tmp_path: Path) -> None:
    attempt = one(FORMAT, write_lines(tmp_path / "output.jsonl", [ROW]))
    assert told(attempt) == EXPECTED
    assert [call["id"] for call in attempt.turns[2]["tool_calls"]] == ["c1", "c2"]
    assert [turn.get("tool_call_id") for turn in attempt.turns[3:5]] == ["c1", "c2"]
    assert (attempt.task_id, attempt.snapshot, attempt.model, attempt.tools) == ("repo__1", "abc", "m-1", TOOLS)
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd) == (20, 4, 0.75)
    assert (attempt.outcome, attempt.fault) == (None, None)  # whether it passed is in a report
    assert "secret-of-the-test" not in repr(attempt)


@pytest.mark.parametrize(
    ("changes", "outcome", "source", "fault"),
    [
        ({"report": {"resolved": True}}, 1.0, "report.resolved", None),
        ({"test_result": {"report": {"resolved": False}}}, 0.0, "test_result.report.resolved", None),
        ({"test_result": {"report": {"resolved": False, "error_eval": True}}}, None, None, "evaluation_failed"),
        ({"test_result": {"report": {"resolved": False, "test_timeout": True}}}, None, None, "evaluation_failed"),
        ({"error": "RuntimeError: runtime crashed", "report": {"resolved": False}}, None, None, "harness_error"),
        (
            {"error": "AgentStuckInLoopError: Agent got stuck in a loop", "report": {"resolved": False}},
            0.0,
            "report.resolved",
            None,
        ),
        ({"error": "RuntimeError: Agent reached maximum iteration in headless mode"}, None, None, None),
    ],
)
def test_outcomes_and_faults(tmp_path: Path, changes: Any, outcome: float | None, source: str | None, fault: str | None) -> None:
    attempt = one(FORMAT, write_lines(tmp_path / "output.jsonl", [{**ROW, **changes}]))
    assert (attempt.outcome, attempt.outcome_source, attempt.fault) == (outcome, source, fault)


@pytest.mark.parametrize(
    ("changes", "outcome", "fault"),
    [
        ({}, 1.0, None),
        ({"success": False}, 0.0, None),
        ({"success": None}, None, "evaluation_failed"),
        ({"success": False, "error": "docker died"}, None, "harness_error"),
    ],
)
def test_rows_of_the_resolver(tmp_path: Path, changes: Any, outcome: float | None, fault: str | None) -> None:
    attempt = one(FORMAT, write_lines(tmp_path / "output.jsonl", [{**RESOLVED, **changes}]))
    assert (attempt.task_id, attempt.snapshot) == ("o/r#7", "abc")
    assert (attempt.outcome, attempt.fault) == (outcome, fault)


def test_a_row_that_broke_at_once_and_a_mere_report(tmp_path: Path) -> None:
    attempt = one(FORMAT, write_lines(tmp_path / "broken.jsonl", [{**ROW, "history": [], "error": "no runtime"}]))
    assert (attempt.turns, attempt.fault, attempt.task_id) == ([], "harness_error", "repo__1")
    report = {**ROW, "history": None, "test_result": {"report": {"resolved": True}}}
    assert list(attempts_of(FORMAT, write_lines(tmp_path / "report.jsonl", [report])).values()) == [[]]


def test_old_histories_hold_pairs_and_calls_told_by_their_arguments(tmp_path: Path) -> None:
    pairs = [
        [act(0, "message", "user", content="Look."), event(1, "agent", observation="null", content="")],
        [act(2, "run", command="ls", thought="I look."), observe(3, 2, "run", "a.txt")],
        [act(4, "message", content="One file."), event(5, "agent", observation="null", content="")],
    ]
    attempt = one(FORMAT, write_lines(tmp_path / "output.jsonl", [{**ROW, "history": pairs}]))
    assert told(attempt) == [EXPECTED[1], EXPECTED[2], ("tool", False, "a.txt"), ("assistant", True, "One file.")]
    assert attempt.turns[1]["tool_calls"][0]["function"] == {"name": "run", "arguments": '{"command":"ls"}'}
    assert attempt.turns[2]["tool_call_id"] == attempt.turns[1]["tool_calls"][0]["id"]
    assert attempt.model == "m-0"


def test_a_trajectory_that_grew_is_one_attempt(tmp_path: Path) -> None:
    paths = [document(tmp_path / "a.json", HISTORY[:8]), document(tmp_path / "b.json", HISTORY)]
    attempt = one(FORMAT, *paths, document(tmp_path / "c.json", {"trajectory": HISTORY}))
    assert told(attempt) == EXPECTED and attempt.task_id is None


def test_a_condensation_goes_on_under_a_summary(tmp_path: Path) -> None:
    rest = [
        act(11, "condensation", forgotten_events_start_id=5, forgotten_events_end_id=8, summary="Looked.", summary_offset=2),
        act(12, "message", content="Going on."),
    ]
    (attempts,) = attempts_of(FORMAT, document(tmp_path / "t.json", [*HISTORY, *rest])).values()
    assert told(attempts[1]) == [
        *EXPECTED[:2],
        ("user", False, "Looked."),
        ("assistant", False, "Done."),
        ("assistant", True, "Going on."),
    ]
    assert (attempts[1].link, attempts[1].parent_ref) == ("compaction", "")
    assert attempts[0].record_ids == attempts[1].record_ids  # one record holds both


def test_how_a_trajectory_ended(tmp_path: Path) -> None:
    def ended(state: str, **extras: Any) -> str | None:
        last = event(11, "environment", observation="agent_state_changed", content="", extras={"agent_state": state, **extras})
        return one(FORMAT, document(tmp_path / "t.json", [*HISTORY, last])).fault

    assert ended("error", reason="docker died") == "harness_error"
    assert ended("error", reason="AgentStuckInLoopError") is None
    assert (ended("stopped"), ended("finished")) == ("aborted", None)


def test_a_dump_of_messages_is_known_by_its_name(tmp_path: Path) -> None:
    path = document(tmp_path / "fncall-llm-message.json", DUMP)
    assert registry.detect(path) is not None and told(one(FORMAT, path)) == [("user", False, "Hi"), ("assistant", True, "Yes.")]


@pytest.mark.parametrize(
    "changes", [{"history": [1]}, {"history": [event(1, "agent", action=5)]}, {"metadata": "x"}, {"instance_id": []}]
)
def test_a_row_of_another_shape_is_refused(tmp_path: Path, changes: Any) -> None:
    (bad,) = bad_of(FORMAT, write_lines(tmp_path / "output.jsonl", [{**ROW, **changes}]))
    assert bad.reason == "wrong_shape"


def test_real_files(shared_logs: Path) -> None:
    folder = shared_logs / "openhands"
    assert registry.detect(folder / "example_model_output.json") is None  # patches alone: no attempt is in it
    found = attempts_of(FORMAT, *(folder / f"{name}.json" for name in ("basic", "basic_gui_mode", "basic_interactions")))
    assert [(len(a.turns), a.num_sampled_turns) for attempts in found.values() for a in attempts] == [(4, 2), (10, 5), (6, 3)]
