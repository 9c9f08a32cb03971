"""Copilot CLI events."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.landing.copilot_cli import OUTCOME_SOURCE, CopilotCli
from pipelines.landing.format import SourceRecord
from tests.landing.bundles import Read, bundle_of, read, reads_or_refuses, roles
from tests.landing.lines import line, stored, write_lines

FORMAT = CopilotCli()
FOLDERS = {"copilot_cli"}


def event(second: int, kind: str, **data: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "data": data,
        "id": f"e{second}",
        "parentId": f"e{second - 1}",
        "timestamp": f"2026-11-20T10:00:{second:02}.000Z",
    }


def answer(second: int, id: str, content: str, *calls: str, **more: Any) -> dict[str, Any]:
    requests = [{"toolCallId": call, "name": "bash", "arguments": {"command": "ls"}, "type": "function"} for call in calls]
    return event(second, "assistant.message", messageId=id, content=content, toolRequests=requests, outputTokens=7, **more)


def result(second: int, call: str, **more: Any) -> dict[str, Any]:
    told = {"success": True, "result": {"content": "a.py"}, **more}
    return event(second, "tool.execution_complete", toolCallId=call, **told)


CONTEXT = {"cwd": "/repo", "repository": "example/repo", "headCommit": "abc"}
EVENTS = [
    event(0, "session.start", sessionId="s1", copilotVersion="1.0.77", selectedModel="gpt-x", context=CONTEXT),
    event(1, "session.info", message="trusted"),
    event(2, "system.message", content="You are Copilot.", role="system"),
    event(3, "user.message", content="List", transformedContent="<now/>List"),
    event(4, "assistant.turn_start", turnId="0"),
    answer(5, "m1", "", "c1", reasoningText="Look first."),
    event(6, "assistant.reasoning", content="Look first."),
    event(7, "tool.execution_start", toolCallId="c1", toolName="bash"),
    result(8, "c1"),
    answer(9, "m2", "One file.", model="gpt-y"),
    event(10, "session.usage_checkpoint", total=1),
]
FILES = [b"".join(line(value) for value in EVENTS), line(EVENTS[0]), line(EVENTS[7])]


def landed(tmp_path: Path, rows: list[Any]) -> Read:
    return read(FORMAT, [write_lines(tmp_path / "events.jsonl", rows)])


def test_a_session(tmp_path: Path) -> None:
    found = landed(tmp_path, EVENTS)
    (attempt,) = found.attempts
    assert roles(attempt) == "suAtA"
    assert found.skipped == {"interface": 3, "duplicate_view": 1, "meta": 1}
    assert attempt.turns[1]["content"] == "<now/>List"
    first = attempt.turns[2]
    assert (first["content"], first["reasoning"]) == (None, "Look first.")
    assert first["tool_calls"][0] == {
        "id": "c1",
        "type": "function",
        "function": {"name": "bash", "arguments": '{"command":"ls"}'},
    }
    assert (attempt.turns[3]["content"], attempt.turns[3]["tool_call_id"]) == ("a.py", "c1")
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens) == (None, None, 14)
    assert (attempt.outcome, attempt.outcome_source, attempt.fault) == (None, None, None)
    assert attempt.snapshot == '["/repo","example/repo","abc","1.0.77"]'


def test_a_raw_line_separator_inside_a_string_is_text(tmp_path: Path) -> None:
    split = answer(9, "m2", "One\u2028file.")
    (attempt,) = landed(tmp_path, [*EVENTS[:9], json.dumps(split, ensure_ascii=False).encode() + b"\n"]).attempts
    assert attempt.turns[-1]["content"] == "One\u2028file." and attempt.model == "gpt-x"


@pytest.mark.parametrize("success", [True, False])
def test_the_policy_s_own_word_is_a_weak_outcome(tmp_path: Path, success: bool) -> None:
    (attempt,) = landed(tmp_path, [*EVENTS, event(11, "session.task_complete", success=success, summary="Listed.")]).attempts
    assert (attempt.outcome, attempt.outcome_source) == (float(success), OUTCOME_SOURCE)


@pytest.mark.parametrize(("kind", "fault"), [("abort", "aborted"), ("session.error", "model_error")])
def test_what_stops_a_session_is_a_fault(tmp_path: Path, kind: str, fault: str) -> None:
    rows = [*EVENTS, event(11, "user.message", content="More"), event(12, kind, reason="x", message="x")]
    (attempt,) = landed(tmp_path, rows).attempts
    assert (roles(attempt), attempt.fault) == ("suAtAu", fault)
    (attempt,) = landed(tmp_path, [*rows, answer(13, "m3", "Here.")]).attempts
    assert attempt.fault is None


def test_chunks_of_one_answer_are_one_turn(tmp_path: Path) -> None:
    (attempt,) = landed(tmp_path, [*EVENTS[:9], answer(9, "m2", "One "), EVENTS[10], answer(11, "m2", "file.")]).attempts
    assert roles(attempt) == "suAtA" and attempt.turns[-1]["content"] == "One file."
    assert attempt.num_reply_tokens == 14


def test_a_subagent_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    inside = [
        answer(6, "m8", "", "c8", parentToolCallId="c1"),
        result(7, "c8", parentToolCallId="c1"),
        answer(8, "m9", "Counted.", parentToolCallId="c1"),
    ]
    trunk, agent = landed(tmp_path, [*EVENTS[:6], *inside, *EVENTS[8:]]).attempts
    assert (roles(trunk), roles(agent)) == ("suAtA", "AtA")
    assert (agent.link, agent.parent_ref, agent.parent_tool_call_id) == ("subagent", trunk.ref, "c1")


def test_a_compaction_begins_an_attempt(tmp_path: Path) -> None:
    rows = [*EVENTS, event(11, "session.compaction_complete", success=True, summaryContent="Summary"), answer(12, "m3", "On.")]
    trunk, later = landed(tmp_path, rows).attempts
    assert (roles(trunk), roles(later), later.link, later.parent_ref) == ("suAtA", "suA", "compaction", trunk.ref)


def test_a_failed_tool_says_why(tmp_path: Path) -> None:
    failed = result(8, "c1", result=None, error={"message": "no such file"}, success=False)
    (attempt,) = landed(tmp_path, [*EVENTS[:8], failed, EVENTS[9]]).attempts
    assert attempt.turns[3]["content"] == "no such file"


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"type": "abort"},
        event(11, "user.message", content=5),
        event(11, "assistant.message", content="x", toolRequests=["ls"]),
        event(11, "tool.execution_complete", result={"content": "x"}),
        event(11, "session.start", sessionId="s1", context="x"),
        {**EVENTS[3], "timestamp": "yesterday"},
    ],
)
def test_a_row_of_another_shape_is_refused_alone(tmp_path: Path, value: Any) -> None:
    found = landed(tmp_path, [*EVENTS, value])
    assert [bad.reason for bad in found.bad] == ["wrong_shape"]
    assert [roles(attempt) for attempt in found.attempts] == ["suAtA"]


def test_the_order_of_records_changes_nothing(tmp_path: Path) -> None:
    pieces = [piece for piece in FORMAT.split(write_lines(tmp_path / "a.jsonl", EVENTS)) if isinstance(piece, SourceRecord)]
    records = stored(FORMAT, *[piece.value for piece in pieces if piece.skip_reason is None])
    assert bundle_of(FORMAT, records[::-1]) == bundle_of(FORMAT, records)


@given(st.randoms(use_true_random=False))
def test_rows_of_any_shape_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, chance: random.Random) -> None:
    rows = [*EVENTS, event(11, "session.task_complete", success=True), event(12, "abort")]
    reads_or_refuses(FORMAT, tmp_path_factory.mktemp("mutated"), rows, chance)


def test_real_events(shared_logs: Path) -> None:
    found = read(FORMAT, sorted(path for path in (shared_logs / "copilot_cli").rglob("*") if path.is_file()))
    assert found.refused == []
    assert {bad.reason for bad in found.bad} == {"wrong_shape"}  # rows whose every value was replaced by a word
    assert sorted(roles(attempt) for attempt in found.attempts) == ["suAtA", "uAtA"]
    assert sorted(attempt.model or "" for attempt in found.attempts) == ["", "gpt-5-mini"]
