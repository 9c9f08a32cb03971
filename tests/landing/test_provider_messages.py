"""Messages of every provider's shape, and answers out of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines.landing.provider_messages import UnreadableMessagesError, answers_of, messages_of
from pipelines.landing.provider_tools import tools_of

ARGUMENTS = {"order": 7}
FUNCTION = {"name": "look_up", "arguments": '{"order":7}'}
TEXT = {"role": "assistant", "content": "Let me see."}
REQUESTS: dict[str, Any] = {
    "openai chat": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Help."},
            {"role": "user", "content": [{"type": "text", "text": "Where is 7?"}]},
            {**TEXT, "tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}]},
            {"role": "tool", "tool_call_id": "c1", "content": "sent"},
        ],
    },
    "openai responses": {
        "instructions": "Help.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Where is 7?"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", **FUNCTION},
            {"type": "function_call_output", "call_id": "c1", "output": "sent"},
        ],
    },
    "anthropic": {
        "system": [{"type": "text", "text": "Help.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "Where is 7?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "c1", "name": "look_up", "input": ARGUMENTS},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "sent"}]}],
            },
        ],
    },
    "bedrock": {
        "system": [{"text": "Help."}],
        "messages": [
            {"role": "user", "content": [{"text": "Where is 7?"}]},
            {
                "role": "assistant",
                "content": [{"text": "Let me see."}, {"toolUse": {"toolUseId": "c1", "name": "look_up", "input": ARGUMENTS}}],
            },
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "sent"}]}}]},
        ],
    },
    "gemini": {
        "config": {"system_instruction": {"parts": [{"text": "Help."}], "role": "user"}},
        "contents": [
            {"role": "user", "parts": [{"text": "Where is 7?"}]},
            {
                "role": "model",
                "parts": [{"text": "Let me see."}, {"functionCall": {"id": "c1", "name": "look_up", "args": ARGUMENTS}}],
            },
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "look_up", "response": "sent"}}]},
        ],
    },
    "langchain": {
        "messages": [
            [
                {"type": "system", "content": "Help.", "additional_kwargs": {}},
                {"type": "human", "content": "Where is 7?", "example": False},
                {
                    "type": "ai",
                    "content": "Let me see.",
                    "tool_calls": [{"name": "look_up", "args": ARGUMENTS, "id": "c1", "type": "tool_call"}],
                },
                {"type": "tool", "content": "sent", "tool_call_id": "c1", "status": "success"},
            ]
        ]
    },
    "langchain lc": [
        {"lc": 1, "type": "constructor", "id": ["langchain", "SystemMessage"], "kwargs": {"content": "Help."}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "Where is 7?"}},
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "AIMessageChunk"],
            "kwargs": {
                "content": "Let me see.",
                "additional_kwargs": {"tool_calls": [{"id": "c1", "type": "function", "function": FUNCTION}]},
            },
        },
        {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"], "kwargs": {"content": "sent", "tool_call_id": "c1"}},
    ],
    "langchain data": [
        {"type": "system", "data": {"content": "Help."}},
        {"type": "human", "data": {"content": "Where is 7?"}},
        {"type": "ai", "data": {"content": "Let me see.", "tool_calls": [{"name": "look_up", "args": ARGUMENTS, "id": "c1"}]}},
        {"type": "tool", "data": {"content": "sent", "tool_call_id": "c1"}},
    ],
    "parts": [
        {"role": "system", "parts": [{"type": "text", "content": "Help."}]},
        {"role": "user", "parts": [{"type": "text", "content": "Where is 7?"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "Let me see."},
                {"type": "tool_call", "id": "c1", "name": "look_up", "arguments": ARGUMENTS},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "sent"}]},
    ],
    "vercel": [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": [{"type": "text", "text": "Where is 7?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool-call", "toolCallId": "c1", "toolName": "look_up", "args": ARGUMENTS},
            ],
        },
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "look_up", "result": "sent"}]},
    ],
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "string"])
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_every_provider_says_the_same(request_: Any, packed: bool) -> None:
    messages = messages_of(json.dumps(request_) if packed else request_)
    assert [(message["role"], message["content"]) for message in messages] == [
        ("system", "Help."),
        ("user", "Where is 7?"),
        ("assistant", "Let me see."),
        ("tool", "sent"),
    ]
    (call,) = messages[2]["tool_calls"]
    assert call["function"]["name"] == "look_up" and json.loads(call["function"]["arguments"]) == ARGUMENTS
    assert call["id"] == messages[3]["tool_call_id"] == "c1"


CALL = {"id": "c1", "type": "function", "function": FUNCTION}
ANSWERS: dict[str, Any] = {
    "openai chat": {
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "yes", "tool_calls": [CALL], "reasoning_content": "hm"},
            }
        ]
    },
    "openai responses": {
        "object": "response",
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
            {"type": "function_call", "call_id": "c1", **FUNCTION},
        ],
    },
    "anthropic": {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "text", "text": "yes"},
            {"type": "tool_use", "id": "c1", "name": "look_up", "input": ARGUMENTS},
        ],
        "stop_reason": "tool_use",
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "hm", "thought": True},
                        {"text": "yes"},
                        {"function_call": {"id": "c1", "name": "look_up", "args": ARGUMENTS}},
                    ],
                },
                "finish_reason": "STOP",
            }
        ]
    },
    "bedrock": {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "hm"}}},
                    {"text": "yes"},
                    {"toolUse": {"toolUseId": "c1", "name": "look_up", "input": ARGUMENTS}},
                ],
            }
        },
        "stopReason": "tool_use",
    },
    "langchain": {
        "generations": [
            [
                {
                    "text": "yes",
                    "message": {
                        "id": ["AIMessage"],
                        "kwargs": {
                            "content": "yes",
                            "tool_calls": [{"name": "look_up", "args": ARGUMENTS, "id": "c1"}],
                            "additional_kwargs": {"reasoning_content": "hm"},
                        },
                    },
                }
            ]
        ]
    },
    "parts": [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "text", "content": "yes"},
                {"type": "tool_call", "id": "c1", "name": "look_up", "arguments": ARGUMENTS},
            ],
            "finish_reason": "tool_call",
        }
    ],
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_every_providers_answer_is_one_message(answer: Any) -> None:
    (message,) = answers_of(answer)
    assert (message["role"], message["content"], message["reasoning"]) == ("assistant", "yes", "hm")
    (call,) = message["tool_calls"]
    assert call["id"] == "c1" and json.loads(call["function"]["arguments"]) == ARGUMENTS


def test_choices_are_answers_side_by_side() -> None:
    choices = [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"} for text in "ab"]
    assert [(answer["content"], answer["finish_reason"]) for answer in answers_of({"choices": choices})] == [
        ("a", "stop"),
        ("b", "stop"),
    ]


def test_parallel_calls_of_the_responses_api_are_one_message() -> None:
    items = [{"type": "function_call", "call_id": f"c{number}", **FUNCTION} for number in (1, 2)]
    assert [call["id"] for call in messages_of(items)[0]["tool_calls"]] == ["c1", "c2"]
    results = [{"type": "function_call_output", "call_id": f"c{number}", "output": "x"} for number in (1, 2)]
    assert [message["role"] for message in messages_of([*items, *results, *items])] == ["assistant", "tool", "tool", "assistant"]


@pytest.mark.parametrize(
    "text",
    [
        '{"name":  "eggs"}',
        '["a", "b"]',
        "[1, 2]",
        '"quoted"',
        '{"message": "hi"}',
        '{"text": "hi", "lang": "en"}',
        '{"input": "x"}',
        "42",
    ],
)
def test_what_a_model_wrote_stays_as_it_wrote_it(text: str) -> None:
    assert answers_of(text) == [{"role": "assistant", "content": text}]


def test_structured_output_that_was_logged_as_an_object_is_its_json() -> None:
    assert [answer["content"] for answer in answers_of({"name": "eggs", "steps": ["crack"]})] == [
        '{"name":"eggs","steps":["crack"]}'
    ]


def test_images_stay_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    (message,) = messages_of([{"role": "user", "content": [{"type": "text", "text": "see"}, image]}])
    assert message["content"] == [{"type": "text", "text": "see"}, image]


@pytest.mark.parametrize("nothing", [None, "", {}, [], "[]", "{}"])
def test_nothing_is_no_message(nothing: Any) -> None:
    assert messages_of(nothing) == [] == answers_of(nothing)


@pytest.mark.parametrize("strange", [7, {"strange": 1}, [7], [[[[[[[[[[[[[[[["deep"]]]]]]]]]]]]]]]], {"messages": 7}])
def test_a_shape_that_is_not_known_is_said_to_be(strange: Any) -> None:
    with pytest.raises(UnreadableMessagesError):
        messages_of(strange)


@pytest.mark.parametrize(
    "held",
    [
        {"tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]},
        {"tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}]},
        {"tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}]},
        {"config": {"tools": [{"function_declarations": [{"name": "f", "description": "d", "parameters": {"type": "object"}}]}]}},
        {"functions": [json.dumps({"name": "f", "description": "d", "parameters": {"type": "object"}})]},
        [
            {
                "role": "tool",
                "content": {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
            }
        ],
    ],
)
def test_tools_are_in_one_shape(held: Any) -> None:
    assert tools_of(held) == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    ]


def test_half_a_chat_is_none() -> None:
    """Exporters cut attributes at a length."""
    whole = json.dumps([{"role": "assistant", "content": "a long text"}])
    for read in (messages_of, answers_of):
        with pytest.raises(UnreadableMessagesError, match="cut"):
            read(whole[:-10])
    assert [answer["content"] for answer in answers_of('{"name": "eg')] == ['{"name": "eg']  # the model's own
