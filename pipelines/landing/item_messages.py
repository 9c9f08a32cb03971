"""Items of OpenAI's Responses API in the words of its chat completions.

Items that the model wrote one after the other (reasoning, text, calls) are one turn. What the vendor's own tools (web
search, code interpreter) did comes as an item too and stays a content part of the turn around it.
"""

from __future__ import annotations

from typing import Any

from pipelines.landing.decoding import BadPieceError
from pipelines.landing.format import text_of
from pipelines.landing.shapes import unpacked

_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action", "computer_call": "action"}
"""Items that ask the harness to do something -> what is asked."""
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")


def messages_of(items: Any, role: str = "user") -> list[dict[str, Any]]:
    """Chat messages of an input or output; `role` is that of a plain text. BadPieceError where it is neither."""
    if items is None:
        return []
    if isinstance(items, str):
        return [{"role": role, "content": items}] if items else []
    if not isinstance(items, list):
        raise BadPieceError("wrong_shape", f"items are a {type(items).__name__}")
    found: list[dict[str, Any]] = []
    held: dict[str, Any] | None = None
    for item in items:
        if not isinstance(item, dict):
            raise BadPieceError("wrong_shape", "an item is no object")
        kind = item.get("type") or "message"
        if kind == "message" and item.get("role", role) != "assistant":
            held = None
            found.append({"role": str(item.get("role", role)), "content": _content(item.get("content"))})
        elif str(kind).endswith("_output"):
            held = None
            output = item.get("output")
            content = output if isinstance(output, str) else _content(output)
            found.append({"role": "tool", "content": content, "tool_call_id": item.get("call_id")})
        elif kind != "item_reference":
            if held is None:
                held = {"role": "assistant", "content": None, "tool_calls": []}
                found.append(held)
            _add(held, kind, item)
    return found


def _add(message: dict[str, Any], kind: str, item: dict[str, Any]) -> None:
    if kind == "message":
        _append(message, _content(item.get("content")))
    elif kind == "reasoning":
        texts = [text for name in ("summary", "content") if (text := text_of(_parts(item.get(name))))]
        message["reasoning_content"] = "\n".join(
            [*([message["reasoning_content"]] if "reasoning_content" in message else []), *texts]
        )
    elif kind in _CALLS:
        function = {"name": item.get("name") or kind, "arguments": item.get(_CALLS[kind])}
        message["tool_calls"].append({"id": item.get("call_id") or item.get("id"), "function": function})
    else:
        _append(message, [item])


def _append(message: dict[str, Any], content: Any) -> None:
    held = message["content"]
    if held in (None, ""):
        message["content"] = content
    elif isinstance(held, str) and isinstance(content, str):
        message["content"] = held + content
    elif content not in (None, ""):
        message["content"] = [*_listed(held), *_listed(content)]


def _listed(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _content(content: Any) -> Any:
    """A string where all parts are text, else the parts."""
    if content is None or isinstance(content, str):
        return content
    parts = _parts(content)
    return parts if any(part.get("type") != "text" for part in parts) else text_of(parts)


def _parts(content: Any) -> list[dict[str, Any]]:
    content = unpacked(content)
    if content is None or isinstance(content, str):
        return [] if not content else [{"type": "text", "text": content}]
    content = [content] if isinstance(content, dict) else content
    parts = []
    for part in content:
        if not isinstance(part, dict):
            raise BadPieceError("wrong_shape", "a content part is no object")
        text = part.get("text") if isinstance(part.get("text"), str) else part.get("refusal")
        is_text = part.get("type") in _TEXTS and isinstance(text, str)
        parts.append({"type": "text", "text": text} if is_text else part)
    return parts
