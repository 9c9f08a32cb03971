"""The chunks of one streamed chat completion -> the completion that they are."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from pipelines.landing.decoding import BadPieceError

CHUNK = "chat.completion.chunk"
_JOINED = ("content", "reasoning_content", "reasoning", "refusal")


def is_chunk(value: Any) -> bool:
    """Whether an object is a chunk of a streamed chat completion."""
    return isinstance(value, dict) and value.get("object") == CHUNK and isinstance(value.get("choices"), list)


def assembled(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The chat completion that some chunks of one stream are; BadPieceError where one is no chunk.

    `from_middle` is true where none of them says who speaks, which servers do with the first words.
    """
    whole: dict[str, Any] = {"object": "chat.completion", "num_chunks": len(chunks), "choices": []}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for name, value in chunk.items():
            if name not in ("object", "choices") and value is not None:
                whole[name] = value
        for part in chunk.get("choices") or ():
            if not isinstance(part, dict) or not isinstance(part.get("delta") or {}, dict):
                raise BadPieceError("wrong_shape", "a choice of a chunk is no object")
            index = part["index"] if isinstance(part.get("index"), int) else 0
            choice = choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            _add(choice, part)
    whole["choices"] = [choices[index] for index in sorted(choices)]
    if not any(_begins(part) for chunk in chunks for part in chunk.get("choices") or ()):
        whole["from_middle"] = True
    return whole


def joined(first: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    """The completion of a stream whose chunks were cut in two: `first` and `rest` as `assembled` made them."""
    choices = {choice["index"]: choice for choice in copy.deepcopy(first["choices"])}
    for part in rest["choices"]:
        choice = choices.setdefault(part["index"], {"index": part["index"], "message": {"role": "assistant", "content": None}})
        _add(choice, {**part, "delta": {name: value for name, value in part["message"].items() if name != "role"}})
    told = {**first, **rest, "num_chunks": first["num_chunks"] + rest["num_chunks"]}
    del told["from_middle"]
    return {**told, "choices": [choices[index] for index in sorted(choices)]}


def _begins(part: dict[str, Any]) -> bool:
    return (part.get("delta") or {}).get("role") is not None


def _add(choice: dict[str, Any], part: dict[str, Any]) -> None:
    message, delta = choice["message"], part.get("delta") or {}
    for name, value in delta.items():
        if name in _JOINED and isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        elif name == "tool_calls":
            for position, call in enumerate(value or ()):
                _add_call(message.setdefault("tool_calls", []), call, position)
        elif name == "function_call" and isinstance(value, dict):
            held = message.setdefault("function_call", {"name": None, "arguments": ""})
            held["name"] = held["name"] or value.get("name")
            held["arguments"] += value.get("arguments") or ""
        elif value is not None and name not in message:
            message[name] = value
    if part.get("finish_reason") is not None:
        choice["finish_reason"] = part["finish_reason"]
    logged = part.get("logprobs")
    if isinstance(logged, dict) and isinstance(logged.get("content"), list):
        choice.setdefault("logprobs", {"content": []})["content"] += logged["content"]
    if isinstance(part.get("token_ids"), list):
        choice["token_ids"] = [*choice.get("token_ids", []), *part["token_ids"]]


def _add_call(calls: list[dict[str, Any]], part: Any, position: int) -> None:
    if not isinstance(part, dict) or not isinstance(part.get("function") or {}, dict):
        raise BadPieceError("wrong_shape", "a tool call of a chunk is no object")
    index = part["index"] if isinstance(part.get("index"), int) else position
    call = next((call for call in calls if call["index"] == index), None)
    if call is None:
        call = {"index": index, "id": None, "type": "function", "function": {"name": None, "arguments": ""}}
        calls.append(call)
    function = part.get("function") or {}
    call["id"] = call["id"] or part.get("id")
    call["function"]["name"] = call["function"]["name"] or function.get("name")
    if isinstance(function.get("arguments"), str):
        call["function"]["arguments"] += function["arguments"]
