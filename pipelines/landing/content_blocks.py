"""Content blocks in the manner of Anthropic's messages, and of those who write them with names of their own -> chat messages.

One message of blocks may be several: results of tools stand inside the user's message, and those of tools that ran on the
vendor's servers (web search, code execution) inside the assistant's, which they cut, since nobody sampled them.
"""

from __future__ import annotations

from typing import Any

from pipelines.landing.decoding import BadPieceError
from pipelines.landing.format import uniform

_REASONING = {"thinking": "thinking", "think": "think", "reasoning": "text"}
"""Types of blocks that hold reasoning, and the field that holds its text."""
_CALLS = {"toolCall": "arguments", "tool-call": "args"}
"""Types of blocks that are calls beside those that end in `tool_use`, and the field with their arguments."""
_TRANSPORT = ("cache_control",)


def turns_of(role: str, content: Any) -> list[dict[str, Any]]:
    """The turns of a message, none of them sampled; none where it says nothing at all."""
    return [uniform(message, call=None) for message in messages_of(role, content)]


def messages_of(role: str, content: Any) -> list[dict[str, Any]]:
    """A message's content as chat messages of `role`, with a message of role `tool` for each result, in the order of the blocks."""
    if not isinstance(content, list):
        return [{"role": role, "content": content}] if isinstance(content, str) else []
    found: list[dict[str, Any]] = []
    held: dict[str, Any] | None = None
    for block in content:
        kind = str(block.get("type")) if isinstance(block, dict) else ""
        if kind == "redacted_thinking":
            continue
        if kind.endswith("tool_result"):
            found.append(tool_message(block.get("tool_use_id"), block.get("content"), name=block.get("name")))
            held = None
            continue
        if held is None:
            held = {"role": role, "content": None}
            found.append(held)
        if kind.endswith("tool_use") or kind in _CALLS:
            arguments = block.get(_CALLS.get(kind, "input"))
            held.setdefault("tool_calls", []).append(tool_call(block.get("id"), block.get("name"), arguments))
        elif kind in _REASONING:
            said = block.get(_REASONING[kind])
            if isinstance(said, str) and said:
                held["reasoning"] = f"{held['reasoning']}\n{said}" if "reasoning" in held else said
        else:
            held["content"] = [*(held["content"] or []), _part(block)]
    return [message for message in found if message["role"] == "tool" or len(message) > 2 or message["content"]]


def tool_call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call in OpenAI's shape."""
    return {"id": _word(id), "type": "function", "function": {"name": _word(name), "arguments": arguments}}


def tool_turn(call_id: Any, content: Any, *, name: Any = None) -> dict[str, Any]:
    """What a tool answered, as a turn."""
    return uniform(tool_message(call_id, content, name=name), call=None)


def tool_message(call_id: Any, content: Any, *, name: Any = None) -> dict[str, Any]:
    """What a tool answered: a string, content parts, or any other JSON, which stays a part."""
    if isinstance(content, list):
        content = [_part(part) for part in content]
    elif isinstance(content, dict):
        content = [content if isinstance(content.get("type"), str) else {"type": "json", "json": content}]
    elif content is not None and not isinstance(content, str):
        content = str(content)
    return {"role": "tool", "content": content, "tool_call_id": _word(call_id), "name": _word(name)}


def text_part(block: dict[str, Any]) -> dict[str, Any]:
    """A block without what concerns only its transport: of a text nothing but the text, of others no cache marks."""
    if block.get("type") in ("text", "input_text", "output_text") and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    return {name: value for name, value in block.items() if name not in _TRANSPORT}


def checked(content: Any) -> None:
    """BadPieceError where `content` is neither text nor a list of blocks whose texts, calls and results can be told."""
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise BadPieceError("wrong_shape", "content is neither text nor a list of blocks")
    for block in content:
        kind = str(block.get("type"))
        needed = ("id", "name") if kind.endswith("tool_use") else ("tool_use_id",) if kind.endswith("tool_result") else ()
        for name in ("text",) if kind == "text" else needed:
            if not isinstance(block.get(name), str):
                raise BadPieceError("wrong_shape", f"{name} of a {kind} block is no string")
        if kind == "tool_result" and not isinstance(block.get("content"), str | list | None):
            raise BadPieceError("wrong_shape", "content of a tool_result block is neither text nor a list of parts")


def _part(block: Any) -> dict[str, Any]:
    return text_part(block) if isinstance(block, dict) else {"type": "text", "text": str(block)}


def _word(value: Any) -> str | None:
    """A name or id; some write numbers."""
    return value if value is None or isinstance(value, str) else str(value)
