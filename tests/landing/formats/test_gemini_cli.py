"""Gemini CLI chats in both layouts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.landing.format import SourceRecord
from pipelines.landing.gemini_cli import GeminiCli
from tests.landing.bundles import Read, bundle_of, read, reads_or_refuses, roles
from tests.landing.lines import line, stored, write_lines

FORMAT = GeminiCli()
FOLDERS = {"gemini_cli"}


def message(second: int, id: str, kind: str, content: Any = "", **more: Any) -> dict[str, Any]:
    return {"id": id, "timestamp": f"2026-11-20T10:00:{second:02}.000Z", "type": kind, "content": content, **more}


def call(result: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": "ls-1", "name": "ls", "args": {"path": "."}, **({} if result is None else {"result": result}), **more}


def response(output: Any) -> list[dict[str, Any]]:
    return [{"functionResponse": {"id": "ls-1", "name": "ls", "response": output}}]


USED = {"input": 100, "output": 10, "thoughts": 5, "cached": 90, "total": 115}
HEADER = {"sessionId": "s1", "projectHash": "abc", "startTime": "2026-11-20T10:00:00.000Z", "kind": "main"}
GROWING = message(2, "m2", "gemini", "I look.", model="gemini-x", toolCalls=[call(status="executing")])
GROWN = message(
    2,
    "m2",
    "gemini",
    "I look.",
    model="gemini-x",
    tokens=USED,
    thoughts=[{"subject": "Plan", "description": "Look first."}],
    toolCalls=[call(response({"output": "a.py"}), status="success")],
)
MESSAGES = [
    message(1, "m1", "user", [{"text": "List "}, {"text": "files."}]),
    GROWN,
    message(3, "m3", "gemini", "One file.", model="gemini-x", tokens=USED),
]
ROWS = [HEADER, MESSAGES[0], {"$set": {"lastUpdated": "2026-11-20T10:00:01Z"}}, GROWING, GROWN, MESSAGES[2]]
WHOLE = {**HEADER, "lastUpdated": "2026-11-20T10:01:00.000Z", "messages": MESSAGES}
FILES = [
    b"".join(line(row) for row in ROWS),
    line(HEADER),
    json.dumps(WHOLE).encode(),
    json.dumps(WHOLE, indent=2).encode(),
    json.dumps(WHOLE).encode()[:300],
    line(GROWN),
]


def landed(tmp_path: Path, rows: list[Any]) -> Read:
    return read(FORMAT, [write_lines(tmp_path / "session.jsonl", rows)])


def test_both_layouts_are_the_same_attempt(tmp_path: Path) -> None:
    new = landed(tmp_path, ROWS)
    (tmp_path / "session.json").write_text(json.dumps(WHOLE, indent=2))
    old = read(FORMAT, [tmp_path / "session.json"])
    (attempt,), (other,) = new.attempts, old.attempts
    assert attempt == other
    assert roles(attempt) == "uAtA"
    assert (new.skipped, new.left, old.skipped, old.left) == ({"meta": 2}, {"superseded": 1}, {}, {})
    first = attempt.turns[1]
    assert (attempt.turns[0]["content"], first["content"], first["reasoning"]) == ("List files.", "I look.", "Plan\nLook first.")
    assert first["tool_calls"] == [{"id": "ls-1", "type": "function", "function": {"name": "ls", "arguments": '{"path":"."}'}}]
    assert (attempt.turns[2]["content"], attempt.turns[2]["tool_call_id"]) == ("a.py", "ls-1")
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens) == ("gemini-x", 200, 30)
    assert (attempt.snapshot, attempt.outcome, attempt.fault, attempt.link) == ("abc", None, None, None)


def test_a_file_that_was_written_anew_is_one_attempt(tmp_path: Path) -> None:
    for name, messages in (("a", [MESSAGES[0], GROWING]), ("b", MESSAGES)):
        (tmp_path / f"{name}.json").write_text(json.dumps({**WHOLE, "messages": messages}))
    found = read(FORMAT, [tmp_path / "b.json", tmp_path / "a.json"])
    assert [roles(attempt) for attempt in found.attempts] == ["uAtA"] and found.left == {"superseded": 1}


def test_the_same_messages_in_two_sessions_are_two_attempts(tmp_path: Path) -> None:
    paths = [write_lines(tmp_path / f"{name}.jsonl", [{**HEADER, "sessionId": name}, *ROWS[1:]]) for name in "ab"]
    assert len(read(FORMAT, paths).attempts) == 2


def test_reading_on_from_the_middle_gives_the_same_records(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", ROWS)
    whole = list(FORMAT.split(path))
    cut = whole[3]
    assert isinstance(cut, SourceRecord)
    assert list(FORMAT.split(path, cut.byte_start, cut.line)) == whole[3:]


def test_messages_of_old_files_in_parts(tmp_path: Path) -> None:
    part = {"id": "m4", "timestamp": "2026-11-20T10:00:09.000Z", "type": "model", "parts": [{"text": "Ok"}]}
    (attempt,) = landed(tmp_path, [*ROWS, message(8, "m5", "user", "Well?"), part]).attempts
    assert roles(attempt) == "uAtAuA" and attempt.turns[-1]["content"] == "Ok"


@pytest.mark.parametrize(
    ("last", "fault"),
    [
        (message(9, "m9", "error", "[API Error: quota]"), "model_error"),
        (message(9, "m9", "info", "Request cancelled."), "aborted"),
        (message(9, "m9", "info", "Update available"), None),
    ],
)
def test_what_was_shown_is_no_turn_and_may_be_a_fault(tmp_path: Path, last: dict[str, Any], fault: str | None) -> None:
    (attempt,) = landed(tmp_path, [*ROWS, last]).attempts
    assert (roles(attempt), attempt.fault) == ("uAtA", fault)
    (attempt,) = landed(tmp_path, [*ROWS, last, message(10, "m10", "gemini", "Anyway.")]).attempts
    assert (roles(attempt), attempt.fault) == ("uAtAA", None)


def test_a_chat_that_was_gone_back_in_has_a_branch(tmp_path: Path) -> None:
    rows = [*ROWS, {"$rewindTo": "m1"}, message(10, "m10", "user", "Count files."), message(11, "m11", "gemini", "One.")]
    trunk, branch = landed(tmp_path, rows).attempts
    assert (roles(trunk), roles(branch)) == ("uAtA", "uA")
    rows[6] = {"$rewindTo": "m3"}
    trunk, branch = landed(tmp_path, rows).attempts
    assert (roles(trunk), roles(branch)) == ("uAtuA", "uatA")  # of equally long ones the later is the attempt
    assert (branch.link, branch.parent_ref, branch.num_shared_turns) == ("branch", trunk.ref, 3)


def test_a_subagent_says_so(tmp_path: Path) -> None:
    (attempt,) = landed(tmp_path, [{**HEADER, "kind": "subagent"}, *ROWS[1:]]).attempts
    assert attempt.link == "subagent"


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"type": "user", "content": "no id"},
        message(5, "m5", "user", 5),
        message(5, "m5", "gemini", [{"text": 5}]),
        message(5, "m5", "gemini", "x", toolCalls="ls"),
        message(5, "m5", "gemini", "x", toolCalls=[{"args": {}}]),
        message(5, "m5", "gemini", "x", thoughts=["hm"]),
        {"$rewindTo": 5},
        {**MESSAGES[0], "timestamp": "yesterday"},
    ],
)
def test_a_row_of_another_shape_is_refused_alone(tmp_path: Path, value: Any) -> None:
    found = landed(tmp_path, [*ROWS, value])
    assert [bad.reason for bad in found.bad] == ["wrong_shape"]
    assert [roles(attempt) for attempt in found.attempts] == ["uAtA"]


def test_unknown_messages_are_skipped(tmp_path: Path) -> None:
    assert landed(tmp_path, [*ROWS, message(9, "m9", "gadget")]).skipped == {"meta": 3}


def test_the_order_of_records_changes_nothing(tmp_path: Path) -> None:
    pieces = [piece for piece in FORMAT.split(write_lines(tmp_path / "a.jsonl", ROWS)) if isinstance(piece, SourceRecord)]
    records = stored(FORMAT, *[piece.value for piece in pieces if piece.skip_reason is None])
    assert bundle_of(FORMAT, records[::-1]) == bundle_of(FORMAT, records)


@given(st.randoms(use_true_random=False))
def test_rows_of_any_shape_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, chance: random.Random) -> None:
    rows = [*ROWS, {"$rewindTo": "m2"}, message(9, "m9", "error", "x")]
    reads_or_refuses(FORMAT, tmp_path_factory.mktemp("mutated"), rows, chance)


def test_real_chats(shared_logs: Path) -> None:
    found = read(FORMAT, sorted(path for path in (shared_logs / "gemini_cli").rglob("*") if path.is_file()))
    assert (found.refused, found.bad) == ([], [])
    assert sorted(roles(attempt) for attempt in found.attempts) == ["uAtA", "uAtAtAuA"]
