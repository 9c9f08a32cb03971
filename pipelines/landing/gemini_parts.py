"""Content parts as Gemini writes them -> OpenAI chat messages, which `format.uniform` makes turns of."""

from __future__ import annotations

from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError


def checked(parts: Any) -> None:
    """BadPieceError where `parts` is neither text nor one or more parts that `messages` can read."""
    if parts is None or isinstance(parts, str):
        return
    for part in parts if isinstance(parts, list) else [parts]:
        if not isinstance(part, str | dict):
            raise BadPieceError("wrong_shape", "a part is neither text nor an object")
        if not isinstance(part, dict):
            continue
        if not isinstance(part.get("text"), str | None):
            raise BadPieceError("wrong_shape", "text of a part is no string")
        for name in ("functionCall", "functionResponse"):
            if not isinstance(called := part.get(name) or {}, dict):
                raise BadPieceError("wrong_shape", f"{name} is no object")
            if called and not isinstance(called.get("name") or called.get("id"), str):
                raise BadPieceError("wrong_shape", f"{name} has neither name nor id")


def messages(role: str, parts: Any) -> list[dict[str, Any]]:
    """One content as chat messages: of `role`, and one of role `tool` for each function response in it."""
    found: list[dict[str, Any]] = []
    open_message: dict[str, Any] | None = None
    if isinstance(parts, str):
        parts = [parts] if parts else []
    for said in parts if isinstance(parts, list) else [parts] if parts else []:
        part: dict[str, Any] = {"text": said} if isinstance(said, str) else said
        if answered := part.get("functionResponse"):
            found.append(
                {
                    "role": "tool",
                    "tool_call_id": answered.get("id") or answered.get("name"),
                    "name": answered.get("name"),
                    "content": response_text(answered.get("response")),
                }
            )
            open_message = None
            continue
        if open_message is None:
            open_message = {"role": role, "content": None}
            found.append(open_message)
        _add(open_message, part)
    return found


def response_text(response: Any) -> str | None:
    """What a function answered: its output where it is nothing but that, else the whole as JSON."""
    if response is None or isinstance(response, str):
        return response
    if isinstance(response, dict) and len(response) == 1 and isinstance(only := next(iter(response.values())), str):
        return only
    return orjson.dumps(response).decode()


def _add(message: dict[str, Any], part: dict[str, Any]) -> None:
    if called := part.get("functionCall"):
        function = {"name": called.get("name"), "arguments": called.get("args")}
        message.setdefault("tool_calls", []).append({"id": called.get("id") or called.get("name"), "function": function})
    elif part.get("thought"):
        message["reasoning"] = (message.get("reasoning") or "") + (part.get("text") or "")
    elif isinstance(part.get("text"), str):
        message["content"] = [*(message["content"] or []), {"type": "text", "text": part["text"]}]
    elif part.keys() - {"thoughtSignature"}:
        message["content"] = [*(message["content"] or []), part]
