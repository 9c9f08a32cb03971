"""Sessions of the pi coding agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.pi_agent import PiAgent
from tests.landing.bundles import attempts_of, bad_of, one, records_of, told
from tests.landing.lines import line, write_lines

FORMAT = PiAgent()
FOLDERS = {"pi_agent"}


def header(second: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "type": "session",
        "id": "session-1",
        "timestamp": at(second),
        "cwd": "/w",
        "provider": "p",
        "modelId": "m",
        **changes,
    }


def at(second: int) -> str:
    return f"2026-11-20T10:{second // 60:02}:{second % 60:02}.000Z"


def entry(second: int, role: str, content: Any, message: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    text = [{"type": "text", "text": content}] if isinstance(content, str) else content
    said = {"role": role, "content": text, **(message or {})}
    if role == "assistant":
        usage = {"input": 10, "output": 2, "cacheRead": 5, "cacheWrite": 0, "cost": {"total": 0.5}}
        said = {"api": "a", "provider": "p", "model": "m-1", "usage": usage, "stopReason": "stop", **said}
    return {"type": "message", "timestamp": at(second), "message": said, **changes}


CALL = [{"type": "thinking", "thinking": "hm"}, {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}}]
RESULT = {"toolCallId": "c1", "toolName": "read", "isError": False}
LINES = [
    header(0),
    {"type": "thinking_level_change", "timestamp": at(1), "thinkingLevel": "low"},
    entry(2, "user", "Read a."),
    entry(3, "assistant", CALL, {"stopReason": "toolUse"}),
    entry(4, "toolResult", "text of a", RESULT),
    entry(5, "assistant", "Done."),
]
FILES = [b"".join(line(row) for row in LINES), line(LINES[0]), line(LINES[4])]


def written(tmp_path: Path, *rows: Any) -> Path:
    return write_lines(tmp_path / "2026-11-20T10-00-00_session-1.jsonl", list(rows))


def test_a_session_is_an_attempt(tmp_path: Path) -> None:
    path = written(tmp_path, *LINES)
    attempt = one(FORMAT, path)
    assert told(attempt) == [
        ("user", False, "Read a."),
        ("assistant", True, None),
        ("tool", False, "text of a"),
        ("assistant", True, "Done."),
    ]
    assert attempt.turns[1]["reasoning"] == "hm" and attempt.turns[1]["finish_reason"] == "toolUse"
    assert attempt.turns[1]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path":"a"}'}
    assert (attempt.turns[2]["tool_call_id"], attempt.turns[2]["name"]) == ("c1", "read")
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd) == ("m-1", 30, 4, 1.0)
    assert (attempt.outcome, attempt.fault, attempt.link, attempt.ref) == (None, None, None, "")
    assert [record.skip_reason for record in records_of(FORMAT, path)] == ["meta", "meta", None, None, None, None]


def test_where_models_change_each_call_names_its_own(tmp_path: Path) -> None:
    rows = [header(), entry(1, "user", "Hi"), entry(2, "assistant", "Yes."), entry(3, "assistant", "No.", {"model": "m-2"})]
    attempt = one(FORMAT, written(tmp_path, *rows))
    assert attempt.model is None
    assert [call["model"] for call in attempt.calls] == ["m-1", "m-2"]


@pytest.mark.parametrize(
    ("reason", "fault"), [("aborted", "aborted"), ("error", "model_error"), ("stop", None), ("length", None)]
)
def test_an_attempt_ends_in_a_fault_only_where_nothing_came_after(tmp_path: Path, reason: str, fault: str | None) -> None:
    rows = [header(), entry(1, "user", "Hi"), entry(2, "assistant", [], {"stopReason": reason})]
    attempt = one(FORMAT, written(tmp_path, *rows))
    assert (attempt.fault, attempt.calls, attempt.num_sampled_turns) == (fault, [], 0)
    rows += [entry(3, "user", "Again"), entry(4, "assistant", "Yes.")]
    attempt = one(FORMAT, written(tmp_path, *rows))
    assert (attempt.fault, len(attempt.calls), attempt.num_prompt_tokens) == (None, 1, 30)


def test_a_forked_session_begins_with_what_was_answered_elsewhere(tmp_path: Path) -> None:
    rows = [header(10, branchedFrom="/x/other.jsonl"), *LINES[1:], entry(11, "user", "More."), entry(12, "assistant", "There.")]
    attempt = one(FORMAT, written(tmp_path, *rows))
    assert [turn["sampled"] for turn in attempt.turns] == [False] * 5 + [True]
    assert (attempt.link, attempt.num_shared_turns, attempt.parent_ref) == ("branch", 4, None)
    late = one(FORMAT, written(tmp_path, header(10), *LINES[1:]))  # a header that was only written late
    assert late.num_sampled_turns == 2 and late.link is None


def test_a_compaction_begins_an_attempt_under_a_summary(tmp_path: Path) -> None:
    rows = [
        *LINES,
        entry(6, "user", "And b?"),
        entry(7, "assistant", "B too."),
        {"type": "compaction", "timestamp": at(8), "summary": "Read a.", "firstKeptEntryIndex": 6, "tokensBefore": 9},
        entry(9, "user", "And c?"),
        entry(10, "assistant", "C."),
    ]
    (attempts,) = attempts_of(FORMAT, written(tmp_path, *rows)).values()
    first, second = attempts
    assert first.num_sampled_turns == 3 and len(first.turns) == 6
    assert [turn["sampled"] for turn in second.turns] == [False, False, False, False, True]
    assert "<summary>\nRead a.\n</summary>" in second.turns[0]["content"]
    assert [turn["content"] for turn in second.turns[1:]] == ["And b?", "B too.", "And c?", "C."]
    assert (second.link, second.parent_ref, second.num_shared_turns) == ("compaction", "", 0)


def test_entries_are_a_tree(tmp_path: Path) -> None:
    def node(second: int, name: str, parent: str | None, role: str, text: str) -> dict[str, Any]:
        return {**entry(second, role, text), "id": name, "parentId": parent}

    rows = [
        header(version=3),
        {"type": "model_change", "id": "m", "parentId": None, "timestamp": at(1), "provider": "p", "modelId": "m-1"},
        node(2, "a", "m", "user", "Hi"),
        node(3, "b", "a", "assistant", "Yes?"),
        node(4, "c", "b", "user", "Left."),
        node(5, "d", "c", "assistant", "Went left."),
        node(6, "e", "b", "user", "Right."),
        node(7, "f", "e", "assistant", "Went right."),
    ]
    (attempts,) = attempts_of(FORMAT, written(tmp_path, *rows)).values()
    first, second = attempts
    assert [turn["content"] for turn in first.turns] == ["Hi", "Yes?", "Left.", "Went left."]
    assert told(second) == [
        ("user", False, "Hi"),
        ("assistant", False, "Yes?"),
        ("user", False, "Right."),
        ("assistant", True, "Went right."),
    ]
    assert (second.link, second.parent_ref, second.num_shared_turns) == ("branch", "", 2)


def test_a_line_that_is_written_twice_counts_once(tmp_path: Path) -> None:
    twice = [header(), *(row for row in LINES[1:] for _ in range(2))]
    assert one(FORMAT, written(tmp_path, *twice)) == one(FORMAT, written(tmp_path, *LINES))


@pytest.mark.parametrize(
    "row",
    [
        {"type": "message", "timestamp": at(1)},
        {"type": "message", "timestamp": "yesterday", "message": {"role": "user", "content": "x"}},
        {"type": "message", "timestamp": at(1), "message": {"role": "user", "content": 5}},
        {"type": "compaction", "timestamp": at(1)},
        {"timestamp": at(1)},
        [],
    ],
)
def test_a_line_of_another_shape_is_refused(tmp_path: Path, row: Any) -> None:
    (bad,) = bad_of(FORMAT, written(tmp_path, *LINES, row))
    assert (bad.reason, bad.line) == ("wrong_shape", len(LINES) + 1)


def test_real_sessions(shared_logs: Path) -> None:
    (large,) = attempts_of(FORMAT, shared_logs / "pi_agent" / "large-session.jsonl").values()
    (attempt,) = large
    assert (attempt.num_sampled_turns, attempt.model, len(attempt.record_ids)) == (439, "claude-sonnet-4-5", 914)
    # forked off another session, and only a setting was changed since
    (copied,) = attempts_of(FORMAT, shared_logs / "pi_agent" / "before-compaction.jsonl").values()
    assert [attempt.link for attempt in copied] == ["branch", "compaction", "compaction"]
    assert sum(attempt.num_sampled_turns for attempt in copied) == 0
