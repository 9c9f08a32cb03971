"""Transcripts of Cursor's agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.cursor_cli import CursorCli
from tests.landing.bundles import attempts_of, bad_of, one, told
from tests.landing.lines import line, write_lines

FORMAT = CursorCli()
FOLDERS = {"cursor_cli"}


def message(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "message": {"content": [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]}}


LINES = [
    message("user", "Look."),
    message(
        "assistant", {"type": "thinking", "thinking": "hm"}, "I look.", {"type": "tool_use", "name": "Bash", "input": {"c": "ls"}}
    ),
    message("user", {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a.txt"}]}),
    message("assistant", "One file."),
    message("user", "Thanks."),
    message("assistant", "You are welcome."),
    message("user", "Thanks."),
    message("assistant", "You are welcome."),
]
FILES = [b"".join(line(row) for row in LINES), line(LINES[0])]


def test_a_transcript_is_an_attempt_whose_equal_lines_are_all_there(tmp_path: Path) -> None:
    attempt = one(FORMAT, write_lines(tmp_path / "chat.jsonl", LINES))
    assert told(attempt) == [
        ("user", False, "Look."),
        ("assistant", True, "I look."),
        ("tool", False, "a.txt"),
        ("assistant", True, "One file."),
        *[("user", False, "Thanks."), ("assistant", True, "You are welcome.")] * 2,
    ]
    assert attempt.turns[1]["reasoning"] == "hm"
    assert attempt.turns[1]["tool_calls"][0]["id"] == attempt.turns[2]["tool_call_id"] == "t1"
    assert (attempt.model, attempt.outcome, attempt.started_at, attempt.link) == (None, None, None, None)


def test_equal_transcripts_of_two_chats_are_two_attempts(tmp_path: Path) -> None:
    paths = [write_lines(tmp_path / folder / "t.jsonl", LINES) for folder in ("a", "b")]
    assert len(attempts_of(FORMAT, *paths)) == 2


def test_a_subagent_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert one(FORMAT, write_lines(tmp_path / "chat" / "subagents" / "x.jsonl", LINES)).link == "subagent"


@pytest.mark.parametrize(
    "row", [{"role": "user"}, {"role": "robot", "message": {"content": []}}, {"role": "user", "message": {"content": 1}}, 5]
)
def test_a_line_of_another_shape_is_refused(tmp_path: Path, row: Any) -> None:
    (bad,) = bad_of(FORMAT, write_lines(tmp_path / "chat.jsonl", [*LINES, row]))
    assert bad.reason == "wrong_shape"


def test_real_transcripts(shared_logs: Path) -> None:
    found = attempts_of(FORMAT, *sorted((shared_logs / "cursor_cli").rglob("*.jsonl")))
    assert sorted((len(a.turns), a.num_sampled_turns) for attempts in found.values() for a in attempts) == [(2, 1), (10, 5)]
