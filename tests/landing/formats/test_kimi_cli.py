"""Wire logs of Kimi's command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.kimi_cli import KimiCli
from tests.landing.bundles import attempts_of, bad_of, one, records_of, told
from tests.landing.lines import line, write_lines

FORMAT = KimiCli()
FOLDERS = {"kimi_cli"}
T = 1_790_000_000_000


def event(time: int, kind: str, step: str | None = "s1", **fields: Any) -> dict[str, Any]:
    return {"type": "context.append_loop_event", "event": {"type": kind, "stepUuid": step, **fields}, "time": T + time}


def user(time: int, text: str, **origin: Any) -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "text", "text": text}], "toolCalls": [], "origin": {"kind": "user", **origin}}
    return {"type": "context.append_message", "message": message, "time": T + time}


def end(time: int, step: str, reason: str) -> dict[str, Any]:
    usage = {"inputOther": 7, "output": 3, "inputCacheRead": 2, "inputCacheCreation": 1}
    return event(time, "step.end", None, uuid=step, usage=usage, finishReason=reason, messageId=f"chatcmpl-{step}")


def said(time: int, step: str, text: str) -> dict[str, Any]:
    return event(time, "content.part", step, part={"type": "text", "text": text})


LINES = [
    {"type": "metadata", "protocol_version": "1.4", "created_at": T},
    {"type": "config.update", "systemPrompt": "You are Kimi.", "time": T + 1},
    {"type": "turn.prompt", "input": [{"type": "text", "text": "Count."}], "time": T + 2},
    user(3, "Count."),
    {"type": "llm.tools_snapshot", "hash": "h", "tools": [{"name": "Bash"}], "time": T + 4},
    {"type": "llm.request", "model": "kimi-k2", "modelAlias": "moonshot/kimi-k2", "time": T + 5},
    {"type": "llm.request", "model": "kimi-k2", "modelAlias": "moonshot/kimi-k2", "attempt": "2/10", "time": T + 6},
    event(7, "content.part", part={"type": "think", "think": "hm"}),
    event(8, "tool.call", uuid="Bash_0", toolCallId="Bash_0", name="Bash", args={"command": "ls"}),
    {
        "type": "context.append_loop_event",
        "event": {"type": "tool.result", "toolCallId": "Bash_0", "result": {"output": "3"}},
        "time": T + 9,
    },
    end(9, "s1", "tool_use"),
    {"type": "usage.record", "model": "moonshot/kimi-k2", "usage": {"inputOther": 7, "output": 3}, "time": T + 9},
    said(10, "s2", "Three."),
    end(11, "s2", "end_turn"),
]
STATE = {"createdAt": "2026-11-20T10:00:00Z", "workDir": "/w", "agents": {"main": {"type": "main", "parentAgentId": None}}}
FILES = [b"".join(line(row) for row in LINES), line(LINES[0]), json.dumps(STATE, indent=2).encode()]


def written(tmp_path: Path, *rows: Any, agent: str | None = None) -> Path:
    inside = tmp_path / "session_0123-abcd-ef" / "agents" / agent if agent else tmp_path
    return write_lines(inside / "wire.jsonl", list(rows))


def test_pieces_of_a_step_are_one_turn_and_usage_counts_once(tmp_path: Path) -> None:
    attempt = one(FORMAT, written(tmp_path, *LINES))
    assert told(attempt) == [
        ("system", False, "You are Kimi."),
        ("user", False, "Count."),
        ("assistant", True, None),
        ("tool", False, "3"),
        ("assistant", True, "Three."),
    ]
    assert attempt.turns[2]["reasoning"] == "hm"
    assert attempt.turns[2]["tool_calls"][0]["function"] == {"name": "Bash", "arguments": '{"command":"ls"}'}
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens) == ("kimi-k2", 20, 6)
    assert [call["call_id"] for call in attempt.calls] == ["chatcmpl-s1", "chatcmpl-s2"]
    assert (attempt.tools, attempt.fault, attempt.link) == ([{"name": "Bash"}], None, None)


def test_what_repeats_or_only_shows_is_skipped(tmp_path: Path) -> None:
    rows = [*LINES, {"type": "permission.set_mode", "mode": "auto", "time": T + 20}]
    reasons = [record.skip_reason for record in records_of(FORMAT, written(tmp_path, *rows))]
    assert [reason for reason in reasons if reason] == ["meta", "duplicate_view", "duplicate_view", "interface"]


def test_a_cancelled_turn_is_a_fault(tmp_path: Path) -> None:
    rows = [*LINES[:7], {"type": "turn.cancel", "time": T + 30}]
    assert one(FORMAT, written(tmp_path, *rows)).fault == "aborted"
    assert (
        one(FORMAT, written(tmp_path, *rows, user(31, "Go on."), said(32, "s9", "Yes."), end(33, "s9", "end_turn"))).fault is None
    )


def test_a_compaction_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    compaction = {"type": "context.apply_compaction", "summary": "short", "contextSummary": "So far: short", "compactedCount": 3}
    rows = [*LINES, {"type": "full_compaction.begin", "time": T + 20}, {**compaction, "time": T + 21}]
    rows += [user(22, "Again."), said(23, "s3", "Three still."), end(24, "s3", "end_turn")]
    (attempts,) = attempts_of(FORMAT, written(tmp_path, *rows)).values()
    assert told(attempts[1]) == [
        ("system", False, "You are Kimi."),
        ("user", False, "So far: short"),
        ("assistant", False, "Three."),  # the fourth message: three were compacted
        ("user", False, "Again."),
        ("assistant", True, "Three still."),
    ]
    assert (attempts[1].link, attempts[1].parent_ref) == ("compaction", "")


def test_after_an_undo_the_prompt_goes_on_from_before(tmp_path: Path) -> None:
    rows = [*LINES, user(20, "Wrong."), said(21, "s3", "Oh."), end(22, "s3", "end_turn")]
    rows += [
        {"type": "context.undo", "count": 1, "time": T + 23},
        user(24, "Right."),
        said(25, "s4", "Ah."),
        end(26, "s4", "stop"),
    ]
    (attempts,) = attempts_of(FORMAT, written(tmp_path, *rows)).values()
    assert [attempt.link for attempt in attempts] == [None, "branch"]
    assert [turn["content"] for turn in attempts[1].turns][-3:] == ["Three.", "Right.", "Ah."]
    assert attempts[1].num_shared_turns == 5 and attempts[1].num_sampled_turns == 1


def test_agents_of_a_session_are_linked(tmp_path: Path) -> None:
    main = written(tmp_path, *LINES, agent="main")
    other = written(tmp_path, *[{**row, "time": row.get("time", T) + 100} for row in LINES], agent="agent-0")
    (attempts,) = attempts_of(FORMAT, main, other).values()
    assert [(attempt.ref, attempt.link, attempt.parent_ref) for attempt in attempts] == [
        ("", None, None),
        ("agent-0", "subagent", ""),
    ]
    assert [attempt.num_sampled_turns for attempt in attempts] == [2, 2]


@pytest.mark.parametrize(
    "row",
    [
        {"type": "context.append_message", "time": T},
        {"type": "context.append_loop_event", "event": "x", "time": T},
        {"type": "context.apply_compaction", "time": T},
        {"type": "metadata", "created_at": [], "time": []},
        {"time": T},
    ],
)
def test_a_line_of_another_shape_is_refused(tmp_path: Path, row: Any) -> None:
    (bad,) = bad_of(FORMAT, written(tmp_path, *LINES, row))
    assert bad.reason == "wrong_shape"


def test_real_logs(shared_logs: Path) -> None:
    folder = shared_logs / "kimi_cli" / "js"
    found = attempts_of(FORMAT, *sorted(folder.iterdir()))
    (small,), (subagent,) = found.values()
    assert (small.num_sampled_turns, small.fault, len(small.tools or ())) == (0, "aborted", 2)
    assert (subagent.num_sampled_turns, subagent.link, subagent.num_reply_tokens) == (3, "subagent", 330)
