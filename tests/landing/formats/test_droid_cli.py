"""Sessions and streams of Factory's Droid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.droid_cli import DroidCli
from tests.landing.bundles import attempts_of, bad_of, one, told
from tests.landing.lines import line, write_lines

FORMAT = DroidCli()
FOLDERS = {"droid_cli"}


def at(second: int) -> str:
    return f"2026-11-20T10:00:{second:02}.000Z"


def entry(second: int, parent: str, role: str, *content: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    message = {"role": role, "content": blocks}
    return {"type": "message", "id": f"m{second}", "parentId": parent, "timestamp": at(second), "message": message}


def event(second: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "session_id": "s-2", "timestamp": at(second), **fields}


STORED = [
    {"type": "session_start", "id": "s-1", "title": "T", "cwd": "/w"},
    entry(1, "s-1", "user", "Look."),
    entry(2, "m1", "assistant", "I look.", {"type": "tool_use", "id": "t1", "name": "Execute", "input": {"command": "ls"}}),
    entry(3, "m2", "user", {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}),
    entry(4, "m3", "assistant", "One file."),
]
STREAMED = [
    event(0, "system", subtype="init", model="m-1", tools=["Execute"]),
    event(1, "message", role="user", text="Look."),
    event(2, "message", role="assistant", text="I look."),
    event(2, "tool_call", toolCallId="c1", toolName="Execute", parameters={"command": "ls"}),
    event(2, "tool_call", toolCallId="c2", toolName="Execute", parameters={"command": "pwd"}),
    event(3, "tool_result", toolCallId="c1", value={"stdout": "a.txt"}),
    event(3, "tool_result", toolCallId="c2", value="/w"),
    event(4, "completion", finalText="One file."),
]
FILES = [b"".join(line(row) for row in rows) for rows in (STORED, STREAMED)]


def test_a_stored_session(tmp_path: Path) -> None:
    attempt = one(FORMAT, write_lines(tmp_path / "s-1.jsonl", STORED))
    assert told(attempt) == [
        ("user", False, "Look."),
        ("assistant", True, "I look."),
        ("tool", False, "a.txt"),
        ("assistant", True, "One file."),
    ]
    assert (attempt.model, attempt.link, attempt.fault) == (None, None, None)
    assert len(attempt.record_ids) == 4  # the header has no time, so it is no part of an attempt that has


def test_entries_are_a_tree_and_subagents_name_their_call(tmp_path: Path) -> None:
    header = {**STORED[0], "callingSessionId": "s-0", "callingToolUseId": "toolu_9"}
    rows = [header, *STORED[1:], entry(5, "m1", "assistant", "I will not.")]
    (attempts,) = attempts_of(FORMAT, write_lines(tmp_path / "s-1.jsonl", rows)).values()
    assert [(a.link, a.parent_tool_call_id, a.num_sampled_turns) for a in attempts] == [
        ("subagent", "toolu_9", 2),
        ("branch", None, 1),
    ]
    assert attempts[1].parent_ref == "" and attempts[1].num_shared_turns == 1


def test_a_stream(tmp_path: Path) -> None:
    attempt = one(FORMAT, write_lines(tmp_path / "out.jsonl", STREAMED))
    assert told(attempt) == [
        ("user", False, "Look."),
        ("assistant", True, "I look."),
        ("tool", False, [{"type": "json", "json": {"stdout": "a.txt"}}]),
        ("tool", False, "/w"),
        ("assistant", True, "One file."),
    ]
    assert [call["id"] for call in attempt.turns[1]["tool_calls"]] == ["c1", "c2"]
    assert attempt.model == "m-1" and len(attempt.calls) == 2


def test_the_completion_only_repeats_what_was_said(tmp_path: Path) -> None:
    rows = [*STREAMED[:-1], event(4, "message", role="assistant", text="One file."), STREAMED[-1]]
    assert one(FORMAT, write_lines(tmp_path / "out.jsonl", rows)).num_sampled_turns == 2
    broken = [*STREAMED[:2], event(9, "error", message="out of credits")]
    assert one(FORMAT, write_lines(tmp_path / "broken.jsonl", broken)).fault == "harness_error"


def test_of_a_session_that_was_streamed_too_the_stored_one_stands(tmp_path: Path) -> None:
    streamed = [{**row, "session_id": "s-1"} for row in STREAMED]
    paths = [write_lines(tmp_path / "s-1.jsonl", STORED), write_lines(tmp_path / "out.jsonl", streamed)]
    assert len(one(FORMAT, *paths).turns) == 4


@pytest.mark.parametrize(
    "row", [entry(5, "m4", "robot", "x"), {"type": "message", "id": "m5"}, {"type": 5}, event(5, "message", role=1)]
)
def test_a_line_of_another_shape_is_refused(tmp_path: Path, row: Any) -> None:
    (bad,) = bad_of(FORMAT, write_lines(tmp_path / "s-1.jsonl", [*STORED, row]))
    assert bad.reason == "wrong_shape"


def test_real_sessions(shared_logs: Path) -> None:
    found = attempts_of(FORMAT, *sorted((shared_logs / "droid_cli" / "js").iterdir()))
    assert {ref: [(len(a.turns), a.num_sampled_turns) for a in attempts] for ref, attempts in found.items()} == {
        "droid_large": [(7, 4)],
        "sid_stage0_small": [(4, 2)],
    }
