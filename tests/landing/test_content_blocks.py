"""Content blocks -> turns, whoever wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.landing.content_blocks import checked, tool_turn, turns_of
from pipelines.landing.decoding import BadPieceError

THINKING = {"type": "thinking", "thinking": "First.", "signature": "x"}
TEXT = {"type": "text", "text": "Let me look.", "cache_control": {"type": "ephemeral"}}
CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}


def told(role: str, content: Any) -> list[tuple[str, Any]]:
    return [(turn["role"], turn["content"]) for turn in turns_of(role, content)]


def test_thinking_text_and_call_are_one_turn() -> None:
    again = {"type": "thinking", "thinking": "Second."}
    (turn,) = turns_of("assistant", [THINKING, TEXT, CALL, again, {"type": "redacted_thinking", "data": "x"}])
    assert (turn["content"], turn["reasoning"]) == ("Let me look.", "First.\nSecond.")
    assert [(call["id"], call["function"]) for call in turn["tool_calls"]] == [("t1", {"name": "look", "arguments": '{"at":1}'})]
    assert (turn["sampled"], turn["call"]) == (False, None)


def test_results_are_turns_of_their_own_in_their_order() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "5", "cache_control": {}}]}
    assert told("user", [result, TEXT]) == [("tool", "5"), ("user", "Let me look.")]
    searched = {"type": "web_search_tool_result", "tool_use_id": "t1", "content": [{"type": "web_search_result", "url": "u"}]}
    assert [role for role, _ in told("assistant", [TEXT, {**CALL, "type": "server_tool_use"}, searched, TEXT])] == [
        "assistant",
        "tool",
        "assistant",
    ]


@pytest.mark.parametrize("content", [None, [], 5, [{"type": "redacted_thinking", "data": "x"}], [{"type": "thinking"}]])
def test_what_says_nothing_is_no_turn(content: Any) -> None:
    assert turns_of("assistant", content) == []


@pytest.mark.parametrize(
    "block",
    [
        {"type": "toolCall", "id": "t1", "name": "look", "arguments": {"at": 1}},
        {"type": "tool-call", "id": "t1", "name": "look", "args": {"at": 1}},
        {**CALL, "type": "mcp_tool_use"},
    ],
)
def test_other_words_for_a_call(block: dict[str, Any]) -> None:
    assert turns_of("assistant", [block])[0]["tool_calls"] == turns_of("assistant", [CALL])[0]["tool_calls"]


def test_other_content_stays_a_part_without_what_concerns_its_transport() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "eA=="}}
    assert told("user", [{**image, "cache_control": {}}]) == [("user", [image])]


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ("x", "x"),
        (None, None),
        (5, "5"),
        (["a", {"type": "text", "text": "b"}], "ab"),
        ({"a": 1}, [{"type": "json", "json": {"a": 1}}]),
    ],
)
def test_what_a_tool_answered(content: Any, read: Any) -> None:
    turn = tool_turn(7, content)
    assert (turn["tool_call_id"], turn["content"]) == ("7", read)


@pytest.mark.parametrize("content", [5, ["x"], [{**CALL, "id": 5}], [{"type": "text", "text": None}], [{"type": "tool_result"}]])
def test_blocks_that_cannot_be_told_are_refused(content: Any) -> None:
    with pytest.raises(BadPieceError):
        checked(content)
    checked([TEXT, CALL, THINKING])
