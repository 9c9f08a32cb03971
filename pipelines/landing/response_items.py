"""Items of the Responses API as turns: reasoning, message, function_call, function_call_output.

One answer of a model is several items in a row: reasoning, then text, then calls; some servers write its reasoning behind
its calls. The next answer begins behind an item of the environment (a call's output, a user's message), where text follows
text or a call, where reasoning does and more of the model follows it, and behind an item that carries the answer's token
ids. Calls without an output and outputs without a call stay as they are.
"""

from __future__ import annotations

from typing import Any

import orjson

from pipelines.landing.format import merged, uniform
from pipelines.landing.shapes import objects, text

_RANK = {"reasoning": 0, "message": 1, "function_call": 2}
"""In which order the items of one answer stand."""


def turns_of(items: list[dict[str, Any]], *, first_call: int | None) -> list[dict[str, Any]]:
    """The items as turns; what a model said is sampled by call `first_call` and the following, by none where it is None."""
    found: list[dict[str, Any]] = []
    for answer in answers(items):
        pieces = [_message(item) for item in answer]
        sampled = first_call is not None and pieces[0]["role"] == "assistant"
        turns = [uniform(message, call=first_call if sampled else None) for message in pieces]
        found.append(merged(turns))
        found[-1].pop("id", None)  # pieces have none yet: the whole turn gets its own
        found[-1].pop("reasoning_id", None)
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


def _rank(item: dict[str, Any]) -> int | None:
    """None for an item of the environment."""
    kind = _kind(item)
    if kind == "message" and item.get("role", "assistant") != "assistant":
        return None
    return _RANK.get(kind)


def _kind(item: dict[str, Any]) -> str:
    kind = item.get("type") or "message"
    if not isinstance(kind, str):
        raise TypeError("an item's type is no string")
    return "function_call" if kind in ("custom_tool_call", "tool_call") else kind


def _message(item: dict[str, Any]) -> dict[str, Any]:
    kind = _kind(item)
    if kind == "reasoning":
        spoken = _texts(item.get("content")) or _texts(item.get("summary"))
        return {"role": "assistant", "content": None, "reasoning": spoken or None}
    if kind == "function_call":
        arguments = item.get("arguments", item.get("input"))
        function = {"name": text(item.get("name")), "arguments": arguments}
        return {"role": "assistant", "content": None, "tool_calls": [{"id": item.get("call_id"), "function": function}]}
    if kind.endswith("_output"):
        output = item.get("output")
        if not isinstance(output, str):
            output = _texts(output) or orjson.dumps(output).decode()
        return {"role": "tool", "content": output, "tool_call_id": item.get("call_id")}
    if kind == "message":
        role = item.get("role", "assistant")
        if not isinstance(role, str):
            raise TypeError("a message's role is no string")
        return {"role": role, "content": _content(item.get("content"))}
    # a call that the provider answered itself, or a kind of item that came later: kept as it is
    return {"role": "assistant", "content": [item]}


def _content(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content
    parts = objects(content)
    said = [part.get("text", part.get("refusal")) for part in parts]
    if all(isinstance(words, str) for words in said):
        return "".join(str(words) for words in said)
    return [{"type": "text", "text": part["text"]} if isinstance(part.get("text"), str) else part for part in parts]


def _texts(parts: Any) -> str:
    if isinstance(parts, str):
        return parts
    return "\n".join(said for part in objects(parts) if (said := text(part.get("text"))) is not None)
