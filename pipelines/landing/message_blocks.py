"""Anthropic's content blocks and stream events in OpenAI's words.

One message of blocks may be several turns: tool results stand inside user messages, and what the vendor's own tools
(web search, code execution) said stands inside the assistant's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError


def assistant_messages(content: Any, role: str = "assistant") -> list[dict[str, Any]]:
    """The assistant's message, cut at the results of the vendor's own tools; always at least one message."""
    found: list[dict[str, Any]] = []
    held = _Message(role)
    for block in _blocks(content):
        kind = str(block.get("type"))
        if kind in ("thinking", "redacted_thinking"):
            thinking = block.get("thinking")
            held.reasoning += thinking if isinstance(thinking, str) else ""
        elif kind.endswith("tool_use"):
            held.calls.append(_tool_call(block))
        elif kind.endswith("tool_result"):
            found += [held.message, _tool_message(block)]
            held = _Message(role)
        else:
            held.parts.append(_part(block))
    if held.parts or held.calls or held.reasoning or not found:
        found.append(held.message)
    return found


def user_messages(content: Any, role: str = "user") -> list[dict[str, Any]]:
    """A tool message for every tool result, and the user's own message where there is something else."""
    results, parts = [], []
    blocks = _blocks(content)
    for block in blocks:
        if block.get("type") == "tool_result":
            results.append(_tool_message(block))
        else:
            parts.append(_part(block))
    return [*results, *([{"role": role, "content": _joined(parts)}] if parts or not blocks else [])]


def assembled(events: Sequence[Any]) -> dict[str, Any]:
    """The message that the events of one stream are; BadPieceError where they are none."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for event in events:
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "message_start" and isinstance(event.get("message"), dict):
            message = dict(event["message"])
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            blocks[_index(event)] = dict(event["content_block"])
        elif kind == "content_block_delta" and isinstance(event.get("delta"), dict):
            block, delta = blocks.setdefault(_index(event), {"type": "text", "text": ""}), event["delta"]
            for name in ("text", "thinking", "signature"):
                if isinstance(delta.get(name), str):
                    block[name] = (block.get(name) or "") + delta[name]
            if isinstance(delta.get("partial_json"), str):
                inputs[_index(event)] = inputs.get(_index(event), "") + delta["partial_json"]
        elif kind == "message_delta":
            delta, usage = event.get("delta"), event.get("usage")
            message.update({name: value for name, value in (delta or {}).items() if value is not None})
            if isinstance(usage, dict):
                known = message["usage"] if isinstance(message.get("usage"), dict) else {}
                message["usage"] = {**known, **{name: value for name, value in usage.items() if value is not None}}
        elif kind == "error" and not message:
            return event
    if not message:
        raise BadPieceError("wrong_shape", "a stream without message_start")
    for index, text in inputs.items():
        if text:
            blocks[index]["input"] = _json_or_text(text)
    message["content"] = [blocks[index] for index in sorted(blocks)]
    return message


class _Message:
    """An assistant's message that is being put together."""

    def __init__(self, role: str) -> None:
        self.role, self.reasoning = role, ""
        self.parts: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []

    @property
    def message(self) -> dict[str, Any]:
        made: dict[str, Any] = {"role": self.role, "content": _joined(self.parts), "tool_calls": self.calls}
        if self.reasoning:
            made["reasoning_content"] = self.reasoning
        return made


def _blocks(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list) and all(isinstance(block, dict | str) for block in content):
        return [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    raise BadPieceError("wrong_shape", f"content of a message is a {type(content).__name__}")


def _part(block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}  # cache marks and citations are no part of what is said
    return {name: value for name, value in block.items() if name != "cache_control"}


def _joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]] | None:
    if not parts:
        return None
    if all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _tool_call(block: dict[str, Any]) -> dict[str, Any]:
    return {"id": block.get("id"), "function": {"name": block.get("name"), "arguments": block.get("input")}}


def _tool_message(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if isinstance(content, dict):
        content = [content]
    parts = [_part(part) for part in _blocks(content)]
    return {"role": "tool", "content": _joined(parts), "tool_call_id": block.get("tool_use_id")}


def _index(event: dict[str, Any]) -> int:
    return event["index"] if isinstance(event.get("index"), int) else 0


def _json_or_text(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # the stream was cut inside
        return text
