"""Items of the Responses API -> messages of one request, and turns of many answers."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.landing.decoding import BadPieceError
from pipelines.landing.response_items import messages_of, turns_of

THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look."}], "encrypted_content": "x"}
TEXT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]}
CALL = {"type": "function_call", "call_id": "t1", "name": "look", "arguments": '{"at":1}'}
OUTPUT = {"type": "function_call_output", "call_id": "t1", "output": "5"}
ASKED = {"role": "user", "content": [{"type": "input_text", "text": "Where?"}]}


def test_what_stands_between_two_items_of_the_environment_is_one_message() -> None:
    asked, said, output, more = messages_of([ASKED, THOUGHT, TEXT, CALL, {**CALL, "call_id": "t2"}, OUTPUT, TEXT, TEXT])
    assert (asked["role"], asked["content"]) == ("user", "Where?")
    assert (said["content"], said["reasoning"], len(said["tool_calls"])) == ("I look.", "Look.", 2)
    assert output == {"role": "tool", "content": "5", "tool_call_id": "t1"}
    assert more["content"] == "I look.I look."


def test_answers_that_follow_each_other_are_several_turns() -> None:
    turns = turns_of([ASKED, THOUGHT, TEXT, CALL, OUTPUT, TEXT, TEXT, CALL], first_call=0)
    assert [(turn["role"], turn["call"]) for turn in turns] == [
        ("user", None),
        ("assistant", 0),
        ("tool", None),
        ("assistant", 1),
        ("assistant", 2),
    ]
    assert not any(turn["sampled"] for turn in turns_of([ASKED, TEXT], first_call=None))


def test_calls_of_other_kinds() -> None:
    shell = {"type": "local_shell_call", "id": "i1", "action": {"command": ["ls"]}}
    custom = {"type": "custom_tool_call", "call_id": "t3", "name": "patch", "input": "*** Begin"}
    (message,) = messages_of([shell, custom], "assistant")
    assert [(call["id"], call["function"]) for call in message["tool_calls"]] == [
        ("i1", {"name": "local_shell_call", "arguments": {"command": ["ls"]}}),
        ("t3", {"name": "patch", "arguments": "*** Begin"}),
    ]
    searched = {"type": "web_search_call", "id": "w1", "status": "completed"}
    assert messages_of([searched, TEXT], "assistant")[0]["content"] == [searched, {"type": "text", "text": "I look."}]


@pytest.mark.parametrize(
    ("items", "role", "read"), [("Hi.", "system", [{"role": "system", "content": "Hi."}]), (None, "user", []), ("", "user", [])]
)
def test_plain_texts(items: Any, role: str, read: Any) -> None:
    assert messages_of(items, role) == read


@pytest.mark.parametrize("items", [5, [5], [{"type": 5}], [{"type": "message", "role": 5}], [{"role": "user", "content": [5]}]])
def test_what_is_no_item_is_refused(items: Any) -> None:
    with pytest.raises(BadPieceError):
        messages_of(items)
