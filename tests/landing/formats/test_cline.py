"""Conversations of Cline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.cline import Cline
from tests.landing.bundles import attempts_of, bad_of, one, told

FORMAT = Cline()
FOLDERS = {"cline"}
BEGUN = 1_790_000_000_000


def message(number: int, role: str, *content: Any, **fields: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    if role == "assistant":
        metrics = {"inputTokens": 10, "outputTokens": 2, "cacheReadTokens": 4, "cacheWriteTokens": 0, "cost": 0.25}
        fields = {"modelInfo": {"id": "m-1", "provider": "p"}, "metrics": metrics, **fields}
    return {"id": f"msg_{number}", "role": role, "content": blocks, "ts": BEGUN + 1000 * number, **fields}


MESSAGES = [
    message(1, "user", "Look."),
    message(2, "assistant", "I look.", {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}}),
    message(3, "user", {"type": "tool_result", "tool_use_id": "t1", "name": "ls", "content": [{"query": "ls", "result": "a"}]}),
    message(4, "assistant", "One file."),
]
SDK = {"version": "1", "sessionId": f"{BEGUN}_abc", "system_prompt": "You are Cline.", "messages": MESSAGES}
SESSION = {
    "session_id": f"{BEGUN}_abc",
    "status": "completed",
    "started_at": "2026-11-20T10:00:00Z",
    "messages_path": "/x",
    "workspace_root": "/w",
}
FILES = [json.dumps(value, indent=2).encode() for value in (SDK, SESSION, MESSAGES)]


def written(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_session_is_an_attempt(tmp_path: Path) -> None:
    attempt = one(FORMAT, written(tmp_path / "s.messages.json", SDK), written(tmp_path / "s.json", SESSION))
    assert told(attempt) == [
        ("system", False, "You are Cline."),
        ("user", False, "Look."),
        ("assistant", True, "I look."),
        ("tool", False, [{"query": "ls", "result": "a"}]),
        ("assistant", True, "One file."),
    ]
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd) == ("m-1", 20, 4, 0.5)
    assert (attempt.fault, attempt.link, len(attempt.record_ids)) == (None, None, 2)


def test_a_session_says_how_it_ended(tmp_path: Path) -> None:
    paths = [written(tmp_path / "m.json", SDK), written(tmp_path / "s.json", {**SESSION, "status": "failed"})]
    assert one(FORMAT, *paths).fault == "harness_error"
    assert attempts_of(FORMAT, paths[1]) == {f"{BEGUN}_abc": []}  # a report on an attempt that is not here


def test_messages_older_than_their_session_were_copied(tmp_path: Path) -> None:
    forked = {**SDK, "sessionId": f"{BEGUN + 3500}_def"}
    attempt = one(FORMAT, written(tmp_path / "m.json", forked))
    assert [turn["sampled"] for turn in attempt.turns] == [False, False, False, False, True]
    assert (attempt.link, attempt.num_shared_turns) == ("branch", 4)


def test_the_history_of_the_extension(tmp_path: Path) -> None:
    bare = [{"role": row["role"], "content": row["content"]} for row in MESSAGES]
    attempt = one(FORMAT, written(tmp_path / "1790" / "api_conversation_history.json", bare))
    assert attempt.num_sampled_turns == 2 and attempt.model is None and attempt.started_at is None
    grown = [written(tmp_path / "1790" / name, rows) for name, rows in (("a.json", MESSAGES[:2]), ("b.json", MESSAGES))]
    assert one(FORMAT, *grown).num_sampled_turns == 2


@pytest.mark.parametrize(
    "value", [{**SDK, "messages": 1}, {**SDK, "sessionId": None}, [*MESSAGES, {"role": "tool"}], [*MESSAGES, 1]]
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, value: Any) -> None:
    (bad,) = bad_of(FORMAT, written(tmp_path / "m.json", value))
    assert bad.reason == "wrong_shape"


def test_the_real_session_is_a_fork_in_which_nothing_was_answered_yet(shared_logs: Path) -> None:
    attempt = one(FORMAT, *sorted((shared_logs / "cline").iterdir()))
    assert (len(attempt.turns), attempt.num_sampled_turns, attempt.num_shared_turns, attempt.link) == (33, 0, 33, "branch")
