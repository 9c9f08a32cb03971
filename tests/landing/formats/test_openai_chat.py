"""Requests and responses of chat completions in their common wrappings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import BadRecord
from pipelines.landing.openai_chat import OpenAIChat
from tests.landing.formats.chat_lines import ASK, SYSTEM, completion, conversation, logged, said, told, tool_call
from tests.landing.formats.reading import of_text, read
from tests.landing.lines import attempts, line, write_lines

FORMAT = OpenAIChat()
FILES = [
    line(logged("1", [SYSTEM, ASK], said("a"))),
    line({"messages": [ASK], "model": "m", "response": completion("1", said("a"))}),
    json.dumps(completion("1", said("a")), indent=2).encode(),
    json.dumps([logged("1", [ASK], said("a"))]).encode(),
    json.dumps({"object": "list", "data": [completion("1", said("a"))], "has_more": False}).encode(),
    line({"model": "m", "messages": [ASK], "temperature": 0.3, "stream": True}),
]
FOLDERS = {"openai_chat_logs"}


@pytest.mark.parametrize(
    "value",
    [
        {"request": {"messages": [SYSTEM, ASK], "model": "m"}, "response": completion("1", said("a"))},
        {"input": [SYSTEM, ASK], "output": completion("1", said("a"))},
        {"messages": [SYSTEM, ASK], "response": json.dumps(completion("1", said("a")))},
        {"request": {"body": {"messages": [SYSTEM, ASK]}}, "response": {"status_code": 200, "body": completion("1", said("a"))}},
        {**completion("1", said("a")), "input_messages": [SYSTEM, ASK]},
    ],
)
def test_wrappings_say_the_same(value: dict[str, Any], tmp_path: Path) -> None:
    (attempt,), bad = of_text(FORMAT, tmp_path / "log.jsonl", line(value))
    assert not bad
    assert [(turn["role"], turn["content"], turn["sampled"]) for turn in attempt.turns] == [
        ("system", "Mend the program.", False),
        ("user", "It prints 5 and should print 6.", False),
        ("assistant", "a", True),
    ]
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens) == ("model-1", 10, 2)
    assert attempt.calls[0]["call_id"] == "1" and attempt.calls[0]["finish_reason"] == "stop"
    assert attempt.started_at is not None or attempt.ended_at is not None


def test_one_file_in_any_layout(tmp_path: Path) -> None:
    calls = conversation("a", "b", "c")
    for content in (b"".join(line(call) for call in calls), json.dumps(calls), json.dumps(calls, indent=1)):
        (attempt,), bad = of_text(FORMAT, tmp_path / "log", content)
        assert not bad and attempt.num_sampled_turns == 3 and attempt.num_gaps == 0
    (attempt,), _ = of_text(FORMAT, tmp_path / "log", json.dumps(calls[0], indent=1))
    assert attempt.num_sampled_turns == 1


def test_calls_of_an_attempt_share_a_bundle_across_files(tmp_path: Path) -> None:
    calls = conversation("a", "b", "c")
    paths = [write_lines(tmp_path / f"{number}.jsonl", [call]) for number, call in enumerate(calls)]
    (attempt,), _ = read(FORMAT, *paths)
    assert attempt.num_sampled_turns == 3


def test_arguments_are_a_json_string_whatever_they_were() -> None:
    """An object here, a string there: the same call, and the answer is found in the next prompt."""
    first = logged("1", [ASK], said(None, tool_calls=[tool_call(arguments={"at": 1})]))
    second = logged("2", [ASK, said("", tool_calls=[tool_call(arguments='{"at":1}')]), told("seen")], said("b"), at=1)
    (attempt,) = attempts(FORMAT, first, second)
    calls = [call["function"]["arguments"] for turn in attempt.turns for call in turn.get("tool_calls", ())]
    assert calls == ['{"at":1}'] and attempt.num_sampled_turns == 2
    number = attempts(FORMAT, logged("3", [ASK], said(None, tool_calls=[tool_call(arguments={"at": "1"})])))
    assert number[0].turns[-1]["tool_calls"][0]["function"]["arguments"] == '{"at":"1"}'


def test_old_names_of_tool_calls() -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    prompt = [ASK, old, {"role": "function", "name": "look", "content": "seen"}]
    value = {"request": {"messages": prompt, "functions": [{"name": "look"}]}, "response": completion("1", said("b"))}
    (attempt,) = attempts(FORMAT, value)
    assert [turn["role"] for turn in attempt.turns] == ["user", "assistant", "tool", "assistant"]
    assert attempt.turns[1]["tool_calls"][0]["function"]["name"] == "look"
    assert attempt.tools == [{"type": "function", "function": {"name": "look"}}]


def test_logprobs_come_with_text_and_from_some_servers_with_ids() -> None:
    content = [{"token": "a", "logprob": -0.5, "top_logprobs": []}, {"token": "b", "logprob": -1, "top_logprobs": []}]
    response = completion("1", said("ab"))
    response["choices"][0]["logprobs"] = {"content": content}
    (attempt,) = attempts(FORMAT, {"messages": [ASK], "response": response})
    assert (attempt.calls[0]["logprobs"], attempt.calls[0]["token_ids"], attempt.exact_tokens) == ([-0.5, -1.0], None, False)
    response["choices"][0]["token_ids"], response["prompt_token_ids"] = [7, 8], [1, 2, 3]
    (attempt,) = attempts(FORMAT, {"messages": [ASK], "response": response})
    assert attempt.exact_tokens and attempt.calls[0]["prompt_token_ids"] == [1, 2, 3]
    for token, id in zip(content, (7, 8), strict=True):
        token["token"] = f"token_id:{id}"
    del response["choices"][0]["token_ids"]
    (attempt,) = attempts(FORMAT, {"messages": [ASK], "response": response})
    assert attempt.calls[0]["token_ids"] == [7, 8]


def test_an_error_is_a_fault_and_no_answer() -> None:
    (attempt,) = attempts(FORMAT, {"request": {"messages": [ASK]}, "response": {"error": {"message": "overloaded"}}})
    assert (attempt.fault, attempt.num_sampled_turns, attempt.calls) == ("model_error", 0, [])


def test_a_request_alone_has_nothing_sampled() -> None:
    value = {"model": "m", "temperature": 0, "messages": [ASK, said("a"), ASK]}
    (attempt,) = attempts(FORMAT, value)
    assert (attempt.num_sampled_turns, attempt.num_gaps, attempt.fault) == (0, 1, None)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"request": {}, "response": {}}, "without choices"),
        ({"request": None, "response": None}, "neither messages nor an answer"),
        ({"id": "1"}, "neither messages nor an answer"),
        ({"messages": [], "response": completion("1")}, "neither messages nor an answer"),
        ({"messages": [{"content": "a"}], "response": completion("1", said("a"))}, "without a role"),
        ({"messages": [{"role": "user", "content": 5}]}, "content of a message"),
        ({"messages": [ASK], "response": {"choices": "none"}}, "without choices"),
        ({"messages": [ASK], "response": completion("1", said("a", tool_calls="x"))}, "tool_calls is no list"),
        ({"messages": [ASK], "response": completion("1", said("a", tool_calls=[{"id": "x"}]))}, "without a function"),
        ([1], "no object"),
    ],
)
def test_what_is_no_call_is_refused_with_the_reason(value: Any, why: str, tmp_path: Path) -> None:
    """An export without inputs and outputs becomes no empty attempt."""
    path = write_lines(tmp_path / "log.jsonl", [logged("1", [ASK], said("a")), value])
    *_, bad = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape" and why in bad.detail


def test_real_files_are_read(shared_logs: Path) -> None:
    path = shared_logs / "openai_chat_logs" / "server__h-llm__tests__fixtures__openai_chat_input_full.json"
    (attempt,), bad = read(FORMAT, path)
    assert not bad and (len(attempt.turns), attempt.num_sampled_turns, attempt.num_gaps) == (5, 0, 2)
