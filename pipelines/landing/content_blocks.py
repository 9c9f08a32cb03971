"""Content blocks in the manner of Anthropic's messages, and of those who write them with names of their own -> turns.

One message is one turn, except that every tool result in it is a turn of its own, in the order of the blocks.
"""

from __future__ import annotations

from typing import Any

from pipelines.landing.format import uniform

_REASONING = {"thinking": "thinking", "think": "think", "reasoning": "text"}
"""Types of blocks that hold reasoning, and the field that holds its text."""
_CALLS = {"tool_use": "input", "toolCall": "arguments", "server_tool_use": "input", "tool-call": "args"}
"""Types of blocks that are calls, and the field with their arguments."""


def turns_of(role: str, content: Any) -> list[dict[str, Any]]:
    """The turns of a message, none of them sampled; none where it says nothing at all."""
    if not isinstance(content, list):
        return [uniform({"role": role, "content": content}, call=None)] if isinstance(content, str) else []
    turns: list[dict[str, Any]] = []
    parts: list[Any] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []

    def close() -> None:
        if parts or reasoning or calls:
            message = {
                "role": role,
                "content": list(parts) or None,
                "reasoning": "\n".join(reasoning) or None,
                "tool_calls": list(calls) or None,
            }
            turns.append(uniform(message, call=None))
            parts.clear(), reasoning.clear(), calls.clear()

    for block in content:
        kind = str(block.get("type")) if isinstance(block, dict) else None
        if not isinstance(block, dict):
            parts.append({"type": "text", "text": str(block)})
        elif kind == "tool_result":
            close()
            turns.append(tool_turn(block.get("tool_use_id"), block.get("content"), name=block.get("name")))
        elif kind in _CALLS:
            calls.append(tool_call(block.get("id"), block.get("name"), block.get(_CALLS[kind])))
        elif kind in _REASONING:
            reasoning += [text] if isinstance(text := block.get(_REASONING[kind]), str) and text else []
        elif kind != "redacted_thinking":
            parts.append(text_part(block))
    close()
    return turns


def tool_call(id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A call in OpenAI's shape."""
    return {"id": word(id), "type": "function", "function": {"name": word(name), "arguments": arguments}}


def tool_turn(call_id: Any, content: Any, *, name: Any = None) -> dict[str, Any]:
    """What a tool answered: a string, content parts, or any other JSON, which stays a part."""
    if isinstance(content, list):
        content = [text_part(part) if isinstance(part, dict) else {"type": "text", "text": str(part)} for part in content]
    elif isinstance(content, dict):
        content = [{"type": "json", "json": content}]
    elif content is not None and not isinstance(content, str):
        content = str(content)
    return uniform({"role": "tool", "content": content, "tool_call_id": word(call_id), "name": word(name)}, call=None)


def word(value: Any) -> str | None:
    """A name or id; some write numbers."""
    return value if value is None or isinstance(value, str) else str(value)


def text_part(block: dict[str, Any]) -> dict[str, Any]:
    """A text block without what concerns only its transport (cache marks, signatures); other blocks as they are."""
    if block.get("type") in ("text", "input_text", "output_text") and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    return block
