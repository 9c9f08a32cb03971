"""Sessions of the Hermes agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.hermes import Hermes
from tests.landing.bundles import attempts_of, bad_of, one, told

FORMAT = Hermes()
FOLDERS = {"hermes"}
CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
SESSION = {
    "session_id": "s-1",
    "model": "m-1",
    "platform": "cli",
    "session_start": "2026-11-20T10:00:00Z",
    "last_updated": "2026-11-20T10:00:09Z",
    "system_prompt": "Be brief.",
    "tools": [{"type": "function", "function": {"name": "ls"}}],
    "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": [CALL], "finish_reason": "tool_calls"},
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        {"role": "assistant", "content": "One file.", "finish_reason": "stop"},
    ],
}
FILES = [json.dumps(SESSION).encode(), json.dumps(SESSION, indent=2).encode()]


def written(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({**SESSION, **changes}, indent=2), encoding="utf-8")
    return path


def test_a_session_is_an_attempt(tmp_path: Path) -> None:
    attempt = one(FORMAT, written(tmp_path / "s.json"))
    assert told(attempt) == [
        ("system", False, "Be brief."),
        ("user", False, "Look."),
        ("assistant", True, ""),
        ("tool", False, "a.txt"),
        ("assistant", True, "One file."),
    ]
    assert (attempt.turns[2]["reasoning"], attempt.turns[4]["finish_reason"]) == ("hm", "stop")
    assert (attempt.model, attempt.tools) == ("m-1", SESSION["tools"])
    assert attempt.started_at is not None and attempt.ended_at is not None


def test_a_session_that_grew_is_one_attempt(tmp_path: Path) -> None:
    longer = [*SESSION["messages"], {"role": "user", "content": "Thanks."}]  # type: ignore[misc]
    (attempts,) = attempts_of(FORMAT, written(tmp_path / "a.json"), written(tmp_path / "b.json", messages=longer)).values()
    assert [len(attempt.turns) for attempt in attempts] == [6]
    assert one(FORMAT, written(tmp_path / "c.json", messages=[], system_prompt=None)).turns == []


@pytest.mark.parametrize(
    "changes", [{"messages": {}}, {"session_id": 3}, {"messages": [{"role": "robot"}]}, {"session_start": []}]
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    (bad,) = bad_of(FORMAT, written(tmp_path / "s.json", **changes))
    assert bad.reason == "wrong_shape"


def test_the_real_session(shared_logs: Path) -> None:
    attempt = one(FORMAT, shared_logs / "hermes" / "js" / "small.json")
    assert (len(attempt.turns), attempt.num_sampled_turns, attempt.model) == (2, 1, "claude-sonnet-4-6")
