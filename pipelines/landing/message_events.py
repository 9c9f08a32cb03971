"""The events of one stream of Anthropic's Messages API -> the message that they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError


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


def _index(event: dict[str, Any]) -> int:
    return event["index"] if isinstance(event.get("index"), int) else 0


def _json_or_text(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # the stream was cut inside
        return text
