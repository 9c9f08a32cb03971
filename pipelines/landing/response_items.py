"""Items of OpenAI's Responses API (reasoning, message, function_call, function_call_output) in the words of chat completions.

`messages_of` reads the input or output of one request: what the model wrote between two items of the environment is one
message. `turns_of` reads what many requests left behind one another, where one answer follows the other: an answer is
reasoning, then text, then calls; some servers write its reasoning behind its calls. The next answer begins behind an item of
the environment (a call's output, a user's message), where text follows text or a call, where reasoning does and more of the
model follows it, and behind an item that carries the answer's token ids.

Calls without an output and outputs without a call stay as they are. What the vendor's own tools (web search, code
interpreter) did comes as an item too and stays a content part of the message around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError
from pipelines.landing.format import text_of, uniform
from pipelines.landing.shapes import objects, text

_RANK = {"reasoning": 0, "message": 1, "function_call": 2}
"""In which order the items of one answer stand."""
_CALLS = {
    "function_call": "arguments",
    "tool_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "computer_call": "action",
}
"""Items that ask the harness to do something -> what is asked."""
_NAMED = ("function_call", "tool_call", "custom_tool_call")
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")


def messages_of(items: Any, role: str = "user") -> list[dict[str, Any]]:
    """Chat messages of an input or output; `role` is that of a plain text. BadPieceError where it is neither."""
    if items is None:
        return []
    if isinstance(items, str):
        return [{"role": role, "content": items}] if items else []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadPieceError("wrong_shape", "items are no list of objects")
    groups: list[list[dict[str, Any]]] = []
    by_model = False
    for item in items:
        if item.get("type") == "item_reference":
            continue
        is_next = not _is_of_environment(item, role)
        if by_model and is_next:
            groups[-1].append(item)
        else:
            groups.append([item])
        by_model = is_next
    return [_joined([message_of(item, role) for item in group]) for group in groups]


def turns_of(items: list[dict[str, Any]], *, first_call: int | None) -> list[dict[str, Any]]:
    """The items as turns; what a model said is sampled by call `first_call` and the following, by none where it is None."""
    found: list[dict[str, Any]] = []
    for answer in answers(items):
        message = _joined([message_of(item, "assistant") for item in answer])
        sampled = first_call is not None and message["role"] == "assistant"
        found.append(uniform(message, call=first_call if sampled else None))
        if sampled and first_call is not None:
            first_call += 1
    return found


def answers(items: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The items, those of one answer together, every other one by itself."""
    found: list[list[dict[str, Any]]] = []
    ranks = [_rank(item) for item in items]
    before: int | None = None
    for place, (item, own) in enumerate(zip(items, ranks, strict=True)):
        if own is None or before is None or token_ids(found[-1][-1]):
            goes_on = False
        elif own == _RANK["reasoning"] and before > own:
            following = next((rank for rank in ranks[place + 1 :] if rank != own), None)
            goes_on = following is None and before == _RANK["function_call"]
        else:
            goes_on = own > before or own == before != _RANK["message"]
        if goes_on:
            found[-1].append(item)
        else:
            found.append([item])
        if not goes_on or own != _RANK["reasoning"]:
            before = own
    return found


def token_ids(item: dict[str, Any]) -> Any:
    """Ids that its answer was sampled with; some tools log the field and leave it empty."""
    return item.get("generation_token_ids")


def message_of(item: dict[str, Any], role: str) -> dict[str, Any]:
    """One item as a chat message; `role` of a message that names none."""
    kind = _kind(item)
    if kind == "message":
        name = item.get("role", role)
        if not isinstance(name, str):
            raise BadPieceError("wrong_shape", "a message's role is no string")
        return {"role": name, "content": content_of(item.get("content"))}
    if kind == "reasoning":
        return {"role": "assistant", "content": None, "reasoning": reasoning_of(item)}
    if kind in _CALLS:
        named = text(item.get("name")) or (None if kind in _NAMED else kind)
        function = {"name": named, "arguments": item.get(_CALLS[kind], item.get("input"))}
        call = {"id": item.get("call_id") or item.get("id"), "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind.endswith("_output"):
        output = item.get("output")
        said = output if output is None or isinstance(output, str | list) else orjson.dumps(output).decode()
        return {"role": "tool", "content": content_of(said), "tool_call_id": item.get("call_id")}
    # a call that the provider answered itself, or a kind of item that came later: kept as it is
    return {"role": "assistant", "content": [item]}


def content_of(content: Any) -> Any:
    """A string where all parts are text, else the parts."""
    if content is None or isinstance(content, str):
        return content
    parts = []
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict):
            raise BadPieceError("wrong_shape", "a content part is no object")
        said = part.get("text") if isinstance(part.get("text"), str) else part.get("refusal")
        is_text = part.get("type", "text") in _TEXTS and isinstance(said, str)
        parts.append({"type": "text", "text": said} if is_text else part)
    return parts if any(part.get("type") != "text" for part in parts) else text_of(parts)


def reasoning_of(item: dict[str, Any]) -> str | None:
    """What a reasoning item lets one read: the reasoning itself, else its summary; None where all of it is encrypted."""
    for told in (item.get("content"), item.get("summary")):
        said = told if isinstance(told, str) else "\n\n".join(part["text"] for part in objects(told) if text(part.get("text")))
        if said:
            return said
    return None


def _joined(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The pieces of one message."""
    if len(messages) == 1:
        return messages[0]
    contents = [message["content"] for message in messages if message["content"] not in (None, "", [])]
    listed = any(isinstance(content, list) for content in contents)
    parts = [
        part for content in contents for part in (content if isinstance(content, list) else [{"type": "text", "text": content}])
    ]
    return {
        "role": messages[0]["role"],
        "content": (parts if listed else "".join(contents)) if contents else None,
        "reasoning": "\n\n".join(message["reasoning"] for message in messages if message.get("reasoning")) or None,
        "tool_calls": [call for message in messages for call in message.get("tool_calls", ())],
    }


def _is_of_environment(item: dict[str, Any], role: str) -> bool:
    kind = _kind(item)
    return kind.endswith("_output") or (kind == "message" and item.get("role", role) != "assistant")


def _rank(item: dict[str, Any]) -> int | None:
    """None for an item of the environment."""
    if _is_of_environment(item, "assistant"):
        return None
    kind = _kind(item)
    return _RANK.get("function_call" if kind in _CALLS else kind)


def _kind(item: dict[str, Any]) -> str:
    kind = item.get("type") or "message"
    if not isinstance(kind, str):
        raise BadPieceError("wrong_shape", "an item's type is no string")
    return kind
