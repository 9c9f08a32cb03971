"""Qwen Code chats."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.landing.qwen_cli import QwenCli
from tests.landing.bundles import Read, bundle_of, read, reads_or_refuses, roles
from tests.landing.lines import attempts, line, stored, write_lines

FORMAT = QwenCli()
FOLDERS = {"qwen_cli"}


def row(number: int, kind: str, parent: int | None, parts: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    role = "model" if kind == "assistant" else "user"
    return {
        "uuid": f"q{number}",
        "parentUuid": None if parent is None else f"q{parent}",
        "sessionId": "s1",
        "timestamp": f"2026-11-20T10:00:{number:02}.000Z",
        "type": kind,
        "cwd": "/repo",
        "version": "0.21.0",
        **({} if parts is None else {"message": {"role": role, "parts": parts}}),
        **more,
    }


CALL = {"functionCall": {"id": "c1", "name": "read_file", "args": {"path": "a.py"}}}
RESULT = {"functionResponse": {"id": "c1", "name": "read_file", "response": {"output": "x = 1"}}}
CHAT = [
    row(1, "user", None, [{"text": "Read it."}]),
    row(2, "assistant", 1, [{"text": "Read first.", "thought": True}], model=None),
    {
        **row(3, "assistant", 1, [{"text": "I read."}, CALL], model="qwen-x"),
        "uuid": "q2",
        "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 4, "thoughtsTokenCount": 2},
    },
    row(4, "tool_result", 2, [RESULT], toolCallResult={"callId": "c1"}),
    row(5, "system", 4, subtype="ui_telemetry"),
    row(
        6,
        "assistant",
        5,
        [{"text": "x is 1."}],
        model="qwen-x",
        usageMetadata={"promptTokenCount": 20, "candidatesTokenCount": 5},
    ),
]
FILES = [b"".join(line(value) for value in CHAT), line(CHAT[0]), line(CHAT[3])]


def landed(tmp_path: Path, rows: list[Any]) -> Read:
    return read(FORMAT, [write_lines(tmp_path / "chat.jsonl", rows)])


def test_calls_thoughts_and_results_inside_the_parts_are_found() -> None:
    (attempt,) = attempts(FORMAT, *CHAT)
    assert roles(attempt) == "uAtA"
    first, result = attempt.turns[1:3]
    assert (first["content"], first["reasoning"]) == ("I read.", "Read first.")
    assert first["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a.py"}'}}
    ]
    assert (result["tool_call_id"], result["name"], result["content"]) == ("c1", "read_file", "x = 1")
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens) == ("qwen-x", 32, 11)
    assert (attempt.outcome, attempt.fault, attempt.link, attempt.snapshot) == (None, None, None, '["/repo",null,"0.21.0"]')


def test_two_objects_on_one_line_are_two_records(tmp_path: Path) -> None:
    both = line(CHAT[0]).rstrip(b"\n") + line(CHAT[1])
    found = landed(tmp_path, [both, *CHAT[2:]])
    assert not found.bad and [roles(attempt) for attempt in found.attempts] == ["uAtA"]


def test_a_rewound_chat_has_a_branch() -> None:
    rewind = row(7, "system", 1, subtype="rewind", systemPayload={"targetUuid": "q1"})
    after = [row(8, "user", 7, [{"text": "No, count it."}]), row(9, "assistant", 8, [{"text": "One."}])]
    trunk, branch = attempts(FORMAT, *CHAT, rewind, *after)
    assert (roles(trunk), roles(branch), branch.link, branch.parent_ref) == ("uAtA", "uuA", "branch", trunk.ref)
    assert branch.num_shared_turns == 1


def test_a_compression_begins_an_attempt_under_the_shortened_history() -> None:
    history = [{"role": "user", "parts": [{"text": "Summary"}]}, {"role": "model", "parts": [{"text": "Got it."}]}]
    compression = row(7, "system", 6, subtype="chat_compression", systemPayload={"compressedHistory": history})
    trunk, later = attempts(
        FORMAT, *CHAT, compression, row(8, "user", 7, [{"text": "Go on."}]), row(9, "assistant", 8, [{"text": "Yes."}])
    )
    assert (roles(trunk), roles(later)) == ("uAtA", "uauA")
    assert (later.link, later.parent_ref) == ("compaction", trunk.ref)


def test_what_a_hook_added_is_part_of_the_prompt() -> None:
    (attempt,) = attempts(
        FORMAT, row(1, "user", None, [{"text": "Hi"}, {"text": "<hook>x</hook>"}]), row(2, "assistant", 1, [{"text": "Hi."}])
    )
    assert attempt.turns[0]["content"] == "Hi<hook>x</hook>"


def test_a_chat_whose_beginning_is_missing_says_so() -> None:
    (attempt,) = attempts(FORMAT, *CHAT[3:])
    assert (attempt.link, attempt.parent_ref, roles(attempt)) == ("continuation", None, "tA")


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"uuid": "q9", "sessionId": "s1"},
        {**CHAT[0], "uuid": None},
        {**CHAT[0], "message": None},
        {**CHAT[0], "parentUuid": 5},
        {**CHAT[0], "timestamp": "yesterday"},
        row(9, "user", 1, [5]),
        row(9, "user", 1, [{"text": 5}]),
        row(9, "assistant", 1, [{"functionCall": {"args": {}}}]),
        row(9, "system", 1, subtype="chat_compression", systemPayload={"compressedHistory": ["x"]}),
    ],
)
def test_a_row_of_another_shape_is_refused_alone(tmp_path: Path, value: Any) -> None:
    found = landed(tmp_path, [*CHAT, value])
    assert [bad.reason for bad in found.bad] == ["wrong_shape"]
    assert [roles(attempt) for attempt in found.attempts] == ["uAtA"]


@given(st.randoms(use_true_random=False))
def test_the_order_in_which_lines_arrive_changes_nothing(shuffled: random.Random) -> None:
    records = stored(FORMAT, *CHAT, row(8, "user", 1, [{"text": "No."}]), row(9, "assistant", 8, [{"text": "Well."}]))
    expected = bundle_of(FORMAT, records)
    shuffled.shuffle(records)
    assert bundle_of(FORMAT, records) == expected


@given(st.randoms(use_true_random=False))
def test_rows_of_any_shape_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, chance: random.Random) -> None:
    rows = CHAT
    reads_or_refuses(FORMAT, tmp_path_factory.mktemp("mutated"), rows, chance)


def test_real_chats(shared_logs: Path) -> None:
    found = read(FORMAT, sorted(path for path in (shared_logs / "qwen_cli").rglob("*") if path.is_file()))
    assert (found.refused, found.bad) == ([], [])
    assert sorted((attempt.link or "", roles(attempt)) for attempt in found.attempts) == [
        ("", "uAtAu"),
        ("", "uuA"),
        ("branch", "uA"),
    ]
    assert found.left == {"unanswered": 1}
