"""LangSmith runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing import registry
from pipelines.landing.format import BadRecord, SourceRecord
from pipelines.landing.langsmith import LangSmith
from tests.landing.lines import attempts, stored

HUMAN = {
    "lc": 1,
    "type": "constructor",
    "id": ["langchain", "schema", "messages", "HumanMessage"],
    "kwargs": {"content": "Where is 7?"},
}
AI = {
    "lc": 1,
    "type": "constructor",
    "id": ["langchain", "schema", "messages", "AIMessage"],
    "kwargs": {
        "content": "",
        "tool_calls": [{"name": "look_up", "args": {"order": 7}, "id": "c1", "type": "tool_call"}],
        "usage_metadata": {"input_tokens": 9, "output_tokens": 2},
    },
}
TOOL = {
    "lc": 1,
    "type": "constructor",
    "id": ["langchain", "schema", "messages", "ToolMessage"],
    "kwargs": {"content": "sent", "tool_call_id": "c1"},
}


def run(number: int, run_type: str, *, parent: int | None = None, **changes: Any) -> dict[str, Any]:
    def named(place: int) -> str:
        return f"2026112{place}T000000000000Zr{place}"

    above = [] if parent is None else [named(1)] if parent == 1 else [named(1), named(parent)]
    return {
        "id": f"r{number}",
        "trace_id": "r1",
        "dotted_order": ".".join([*above, named(number)]),
        "parent_run_id": None if parent is None else f"r{parent}",
        "name": f"run {number}",
        "run_type": run_type,
        "start_time": f"2026-11-20T10:00:0{number}+00:00",
        "end_time": f"2026-11-20T10:00:0{number}.500000+00:00",
        "inputs": {"input": "Where is 7?"},
        "outputs": {"output": "sent"},
        "extra": {"metadata": {"ls_model_name": "m"}},
        **changes,
    }


def generations(*messages: dict[str, Any]) -> dict[str, Any]:
    return {
        "generations": [[{"text": "", "message": message, "generation_info": {"finish_reason": "stop"}} for message in messages]]
    }


SAID = {
    "lc": 1,
    "type": "constructor",
    "id": ["AIMessage"],
    "kwargs": {"content": "It was sent.", "usage_metadata": {"input_tokens": 12, "output_tokens": 3}},
}
TRACE = [
    run(1, "chain"),
    run(2, "llm", parent=1, inputs={"messages": [[HUMAN]]}, outputs=generations(AI)),
    run(3, "tool", parent=1, name="look_up", inputs={"input": '{"order": 7}'}, outputs={"output": TOOL}),
    run(4, "llm", parent=1, inputs={"messages": [[HUMAN, AI, TOOL]]}, outputs=generations(SAID)),
]
POST = {
    "id": "p1",
    "trace_id": "p1",
    "dotted_order": "20261120T100000000000Zp1",
    "name": "ChatOpenAI",
    "run_type": "llm",
    "start_time": 1763632800000,
    "inputs": {
        "messages": [{"role": "user", "content": "hi"}],
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "f"}}],
    },
    "outputs": {},
    "extra": {"metadata": {"ls_model_name": "m"}},
}
PATCH = {
    "trace_id": "p1",
    "dotted_order": "20261120T100000000000Zp1",
    "end_time": 1763632801000,
    "outputs": {
        "model": "m-1",
        "choices": [
            {"index": 0, "finish_reason": {"finish_reason": "stop"}, "message": {"role": "assistant", "content": "hello"}}
        ],
        "usage_metadata": {"input_tokens": 9, "output_tokens": 2},
    },
}
FORMAT = LangSmith()
FILES = [
    json.dumps({"post": [POST], "patch": [PATCH]}).encode(),
    json.dumps({"post": [POST], "patch": [PATCH]}, indent=2).encode(),
    json.dumps({"patch": [PATCH]}).encode(),
    json.dumps(TRACE).encode(),
    b"".join(json.dumps(one).encode() + b"\n" for one in TRACE),
]
FOLDERS = {"langsmith_runs"}


def test_a_run_and_its_patch_are_one_call_in_either_order() -> None:
    for values in ([POST, PATCH], [PATCH, POST]):
        (attempt,) = attempts(FORMAT, *values)
        assert [(turn["role"], turn["content"], turn["sampled"]) for turn in attempt.turns] == [
            ("user", "hi", False),
            ("assistant", "hello", True),
        ]
        assert len(attempt.record_ids) == 2 and attempt.calls[0]["finish_reason"] == "stop"
        assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens) == ("m-1", 9, 2)
        assert attempt.tools is not None and attempt.tools[0]["function"]["name"] == "f"
        assert attempt.started_at is not None and attempt.ended_at is not None
        assert (attempt.ended_at - attempt.started_at).total_seconds() == 1


def test_llm_runs_of_a_chain_are_one_attempt() -> None:
    for runs in (TRACE, TRACE[::-1]):
        (attempt,) = attempts(FORMAT, *runs)
        assert [(turn["role"], turn["content"], turn["sampled"]) for turn in attempt.turns] == [
            ("user", "Where is 7?", False),
            ("assistant", "", True),
            ("tool", "sent", False),
            ("assistant", "It was sent.", True),
        ]
        assert attempt.turns[1]["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"order":7}'}
        assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.num_gaps) == (21, 5, 0)


def test_a_model_called_below_a_tool_is_a_subagent() -> None:
    inner = run(
        5,
        "llm",
        parent=3,
        start_time="2026-11-20T10:00:03.1+00:00",
        inputs={"messages": [[{"type": "human", "content": "Find 7."}]]},
        outputs=generations(SAID),
    )
    desk, finder = attempts(FORMAT, *TRACE, inner)
    assert (finder.link, finder.parent_ref, finder.parent_tool_call_id) == ("subagent", desk.ref, "c1")


@pytest.mark.parametrize(
    ("stats", "outcome"),
    [
        ({"correct": {"n": 1, "avg": 1.0}}, (1.0, "scores.correct")),
        ({"correct": {"n": 2, "avg": 0.5}}, (None, None)),
        ({"correct": {"n": 1, "avg": 1.0}, "tone": {"n": 1, "avg": 0.0}}, (None, None)),
        (None, (None, None)),
    ],
)
def test_feedback_of_the_root_is_the_outcome(stats: Any, outcome: tuple[Any, Any]) -> None:
    root = {**TRACE[0], "feedback_stats": stats, "reference_example_id": "example-1"}
    (attempt,) = attempts(FORMAT, root, *TRACE[1:])
    assert (attempt.outcome, attempt.outcome_source) == outcome and attempt.task_id == "example-1"


def test_a_failed_run_is_a_fault() -> None:
    failed = run(2, "llm", inputs={"messages": [[HUMAN]]}, outputs=None, error="RateLimitError()")
    (attempt,) = attempts(FORMAT, failed)
    assert (attempt.fault, attempt.num_sampled_turns) == ("model_error", 0)


def test_hidden_runs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([run(2, "llm", inputs={}, outputs={})]), encoding="utf-8")
    (bad,) = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and "LANGSMITH_HIDE_INPUTS" in bad.detail


@pytest.mark.parametrize(
    "changes",
    [
        {"id": None, "dotted_order": None},
        {"start_time": "noon"},
        {"inputs": {"strange": 1}},
        {"trace_id": None, "dotted_order": 7},
    ],
)
def test_a_run_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([TRACE[3], {**TRACE[1], **changes}]), encoding="utf-8")
    good, bad = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape" and isinstance(good, SourceRecord)


def test_a_patch_without_its_run_is_left() -> None:
    bundle = FORMAT.attempts(stored(FORMAT, PATCH))
    assert (bundle.attempts, bundle.left) == ([], {"rec-0": (None, "duplicate_view")})


def test_the_real_files(shared_logs: Path) -> None:
    for path in sorted((shared_logs / "langsmith_runs").glob("*.json")):
        assert registry.detect(path) is not None
        pieces = [piece for piece in FORMAT.split(path) if isinstance(piece, SourceRecord)]
        (attempt,) = attempts(FORMAT, *(piece.value for piece in pieces))
        assert len(pieces) == len(attempt.record_ids) == 2 and attempt.num_sampled_turns == 1
        assert (attempt.num_reply_tokens is None) == ("usage" in path.name) and attempt.started_at is not None
        assert attempt.calls[0]["finish_reason"] == "stop"
