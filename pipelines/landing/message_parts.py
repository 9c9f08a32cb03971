"""One part of a message's content, in whatever words its provider uses -> text, reasoning, tool call, tool result or other.

The words that are known: OpenAI chat and Responses items, Anthropic blocks, Gemini parts, Bedrock Converse, the Vercel AI
SDK, the parts of OpenTelemetry's GenAI conventions, LangChain's content blocks.
"""

from __future__ import annotations

from typing import Any, Literal

import orjson

from pipelines.landing.shapes import first, text

Kind = Literal["text", "reasoning", "call", "result", "other", "nothing"]

_TEXT = {"text", "input_text", "output_text", "refusal"}
_REASONING = {"thinking", "reasoning", "reasoning_text", "summary_text"}
_CALL = {"tool_call", "tool_use", "function_call", "custom_tool_call", "server_tool_use", "mcp_tool_use", "function"}
_RESULT = {
    "tool_call_response",
    "tool_result",
    "tool_response",
    "function_call_output",
    "function_result",
    "function_response",
    "custom_tool_call_output",
    "mcp_tool_result",
}
_CALL_KEYS = ("function_call", "functionCall", "toolUse", "tool_use")
_RESULT_KEYS = ("function_response", "functionResponse", "toolResult", "tool_result")
_CALL_IDS = ("call_id", "toolCallId", "tool_call_id", "toolUseId", "tool_use_id", "id")


def part_of(part: Any) -> tuple[Kind, Any]:
    """What a part is and what it says: a text, an OpenAI tool call, a tool message, or the part itself."""
    if isinstance(part, str):
        return "text", part
    if not isinstance(part, dict):
        return "nothing", None
    kind = word(part.get("type"))
    if kind == "non_standard" and isinstance(part.get("value"), dict):  # LangChain's wrapper of what it does not know
        return part_of(part["value"])
    for key in _CALL_KEYS:
        if isinstance(part.get(key), dict):
            return "call", call_of(part[key])
    for key in _RESULT_KEYS:
        if isinstance(part.get(key), dict):
            return "result", result_of(part[key])
    if kind in _RESULT:
        return "result", result_of(part)
    if kind in _CALL and name_of(part) is not None:
        return "call", call_of(part)
    if kind in _REASONING or part.get("thought") is True or "reasoningContent" in part:
        said = reasoning_of(part)
        return ("reasoning", said) if said else ("nothing", None)
    said = first(part, "text", "content", "refusal")
    if (kind in _TEXT or not kind) and isinstance(said, str):
        return "text", said
    return "other", part


def call_of(call: dict[str, Any]) -> dict[str, Any]:
    """An OpenAI tool call; arguments that are no string become JSON."""
    function = call["function"] if isinstance(call.get("function"), dict) else call
    arguments = first(function, "arguments", "args", "input", "parameters")
    if not isinstance(arguments, str):
        arguments = orjson.dumps(arguments if arguments is not None else {}).decode()
    return {"id": text(first(call, *_CALL_IDS)), "type": "function", "function": {"name": name_of(call), "arguments": arguments}}


def result_of(result: dict[str, Any]) -> dict[str, Any]:
    """A tool message."""
    said = first(result, "result", "response", "output", "content", "value")
    message = {"role": "tool", "content": said_by_tool(said), "tool_call_id": text(first(result, *_CALL_IDS))}
    name = name_of(result)
    return message if name is None else {**message, "name": name}


def said_by_tool(said: Any) -> Any:
    """What a tool gave back as content: a string or parts; other values as their JSON."""
    if isinstance(said, dict) and said.keys() == {"type", "value"}:  # Vercel: {"type": "json", "value": …}
        said = said["value"]
    if said is None or isinstance(said, str):
        return said
    if isinstance(said, list) and said and all(isinstance(part, dict) for part in said):
        parts = [part_of(part) for part in said]
        if all(kind == "text" for kind, _ in parts):
            return "".join(text for _, text in parts)
        if all("type" in part for part in said):
            return [
                {"type": "text", "text": value} if kind == "text" else part
                for part, (kind, value) in zip(said, parts, strict=True)
            ]
    return orjson.dumps(said).decode()


def reasoning_of(part: dict[str, Any]) -> str:
    """The readable text of a part of reasoning; empty where it is withheld or encrypted."""
    said = first(part, "thinking", "reasoning", "text", "content", "summary", "reasoningContent", "reasoningText")
    if isinstance(said, dict):
        return reasoning_of(said)
    if isinstance(said, list):
        return "\n\n".join(found for found in (reasoning_of(inner) for inner in said if isinstance(inner, dict)) if found)
    return said if isinstance(said, str) else ""


def name_of(call: dict[str, Any]) -> str | None:
    """The name of the tool that is called or answers."""
    function = call.get("function")
    if isinstance(function, dict):
        call = function
    return text(first(call, "name", "toolName", "tool_name", "function_name"))


def word(value: Any) -> str:
    """A type's name in one spelling: `tool-call`, `toolCall` and `tool_call` are one."""
    if not isinstance(value, str):
        return ""
    spelled = "".join(f"_{letter}" if letter.isupper() and not value.isupper() else letter for letter in value)
    return spelled.lower().replace("-", "_").lstrip("_")
