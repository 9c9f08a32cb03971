"""Event streams of Anthropic's managed agents."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing import registry
from pipelines.landing.claude_managed_agents import ClaudeManagedAgents
from pipelines.landing.format import BadRecord, SourceRecord
from tests.landing.lines import attempts, line

CREATE = [
    "client.beta.sessions.create",
    {"id": "sesn_1", "agent": {"system": "Help.", "model": {"id": "m"}, "tools": [{"type": "toolset"}]}},
]
SENT = [
    "client.beta.sessions.events.send",
    ["sesn_1", {"events": [{"type": "user.message", "content": [{"type": "text", "text": "hi"}]}]}],
]


def event(number: int, type: str, **said: Any) -> list[Any]:
    return [
        "client.beta.sessions.events.stream",
        {"id": f"e{number}", "processed_at": f"2026-11-20T10:00:{number:02}Z", "type": type, **said},
    ]


def text(said: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": said}]


USAGE = {"input_tokens": 2, "cache_read_input_tokens": 7, "output_tokens": 3}
STREAM = [
    event(1, "user.message", content=text("hi")),
    event(2, "span.model_request_start"),
    event(3, "agent.thinking"),
    event(4, "agent.message", content=text("Let me see.")),
    event(5, "agent.mcp_tool_use", name="look_up", input={"order": 7}),
    event(6, "span.model_request_end", is_error=False, model_usage=USAGE),
    event(7, "session.status_idle", stop_reason={"type": "requires_action"}),
    event(8, "user.tool_confirmation", tool_use_id="e5", result="deny"),
    event(9, "agent.mcp_tool_result", mcp_tool_use_id="e5", is_error=True, content=text("refused")),
    event(10, "span.model_request_start"),
    event(11, "agent.message", content=text("I may not.")),
    event(12, "span.model_request_end", is_error=False, model_usage=USAGE),
]
FORMAT = ClaudeManagedAgents()
FILES = [b"".join(line(one) for one in (CREATE, SENT, *STREAM)), line(STREAM[0])]
FOLDERS = {"langsmith_runs"}


def read(path: Path, values: list[Any]) -> tuple[list[Any], list[str]]:
    """Stored values of a file, and the reasons of what was skipped."""
    path.write_bytes(b"".join(line(value) for value in values))
    pieces = [piece for piece in FORMAT.split(path) if isinstance(piece, SourceRecord)]
    assert {piece.bundle_ref for piece in pieces if piece.skip_reason is None} <= {"sesn_1"}
    return [piece.value for piece in pieces if piece.skip_reason is None], [
        piece.skip_reason for piece in pieces if piece.skip_reason
    ]


def test_a_session_is_one_attempt_of_whole_answers(tmp_path: Path) -> None:
    values, skipped = read(tmp_path / "s.jsonl", [CREATE, SENT, *STREAM])
    assert skipped == ["duplicate_view", "meta", "meta"]
    for _ in range(3):
        (attempt,) = attempts(FORMAT, *values)
        assert [(turn["role"], turn["content"], turn["sampled"], turn["call"]) for turn in attempt.turns] == [
            ("system", "Help.", False, None),
            ("user", "hi", False, None),
            ("assistant", "Let me see.", True, 0),
            ("tool", "refused", False, None),
            ("assistant", "I may not.", True, 1),
        ]
        (call,) = attempt.turns[2]["tool_calls"]
        assert (call["id"], call["function"]["name"], attempt.turns[3]["tool_call_id"]) == ("e5", "look_up", "e5")
        assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.fault) == ("m", 18, 6, None)
        random.Random(1).shuffle(values)


def test_an_error_that_ended_the_session_is_a_fault(tmp_path: Path) -> None:
    values, _ = read(tmp_path / "s.jsonl", [CREATE, *STREAM[:2], event(3, "session.error")])
    (attempt,) = attempts(FORMAT, *values)
    assert attempt.fault == "model_error"


@pytest.mark.parametrize("value", [["client.beta.sessions.events.stream", {"id": "e"}], {"type": "agent.message"}, ["other", {}]])
def test_a_line_of_another_shape_is_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(line(CREATE) + line(value))
    _, bad = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape"


def test_the_real_file(shared_logs: Path) -> None:
    path = shared_logs / "langsmith_runs" / "anthropic_managed_mcp_tools_reject.jsonl"
    assert registry.detect(path) is not None
    pieces = [piece for piece in FORMAT.split(path) if isinstance(piece, SourceRecord)]
    (attempt,) = attempts(FORMAT, *(piece.value for piece in pieces if piece.skip_reason is None))
    assert [turn["role"] for turn in attempt.turns] == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert attempt.num_sampled_turns == len(attempt.calls) == 3 and attempt.num_reply_tokens == 314
