"""A provider's messages in whatever shape -> OpenAI chat messages, for logs that keep requests and answers as they were.

Observability exports hold what was sent to a model and what came back in the provider's or the framework's own shape, often
as a JSON string: OpenAI chat, Responses items, Anthropic blocks, Gemini contents, LangChain messages (plain, `kwargs`,
`lc`), message parts. The shape is told by its keys alone. Consecutive Responses items of one answer (reasoning, text, calls)
are one message, as every other provider writes it.
"""

from __future__ import annotations

from typing import Any

import orjson

from pipelines.landing.message_parts import call_of, part_of, reasoning_of, result_of, said_by_tool, word
from pipelines.landing.provider_tools import tool_as_message
from pipelines.landing.shapes import first, text, unpacked

ROLES = {
    "model": "assistant",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "bot": "assistant",
    "human": "user",
    "humanmessage": "user",
    "systemmessage": "system",
    "toolmessage": "tool",
    "function": "tool",
    "functionmessage": "tool",
}
_NAMES = {"system", "developer", "user", "assistant", "tool"}
_ITEMS = {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning"}
_WRAPPERS = ("message", "new_message", "input_value", "messages", "contents", "input", "prompt", "inputs", "request", "kwargs")
_CUT_REQUEST = ('[{"', '{"')
_CUT_ANSWER = ('[{"role"', '[{"parts"', '[{"type"', '{"role"', '{"choices"', '{"candidates"', '{"generations"')
"""How a request or an answer begins that is JSON; exporters cut long attributes, and half a chat is none."""
MAX_DEPTH = 12


class UnreadableMessagesError(ValueError):
    """A value whose shape is no provider's."""


def messages_of(value: Any, role: str = "user", depth: int = 0) -> list[dict[str, Any]]:
    """The chat messages that a request or an answer holds; `role` of what names none. Empty where it holds none.

    Raises UnreadableMessagesError for a shape that is not known.
    """
    if depth > MAX_DEPTH:
        raise UnreadableMessagesError("messages are nested too deep")
    value = unpacked(value)
    if value is None or value == "" or value == {}:
        return []
    if isinstance(value, str):
        if role == "user" and value.lstrip().startswith(_CUT_REQUEST):
            raise UnreadableMessagesError("JSON that was cut")
        return [{"role": role, "content": value}]
    if isinstance(value, list):
        return _of_list(value, role, depth)
    if isinstance(value, dict):
        return _of_object(value, role, depth)
    raise UnreadableMessagesError(f"a {type(value).__name__} is no message")


def answers_of(value: Any) -> list[dict[str, Any]]:
    """The answers that a call got, one message for each choice, with `finish_reason` where it is said.

    An object of no known shape is what the model was made to write (structured output): its JSON is the answer's text, in
    its own spelling where that was logged.
    """
    written, value = value, unpacked(value)
    if isinstance(value, str) and value.lstrip().startswith(_CUT_ANSWER):
        raise UnreadableMessagesError("JSON that was cut")
    if isinstance(value, dict) and (options := _options(value)) is not None:
        return [answer for answer in (_one(option) for option in options) if answer is not None]
    try:
        if isinstance(written, str) and isinstance(value, list) and not all(isinstance(item, dict) for item in value):
            raise UnreadableMessagesError("a list that a model wrote")
        read = messages_of(value, "assistant")
    except UnreadableMessagesError:
        return [{"role": "assistant", "content": written if isinstance(written, str) else orjson.dumps(value).decode()}]
    said = [message for message in read if message["role"] == "assistant"]
    if len(said) > 1 and any(message["role"] != "assistant" for message in read):
        said = said[-1:]  # a whole chat: only its end is new
    if len(said) > 1 and all(message.get("tool_calls") and not message.get("content") for message in said):
        said = [_joined(said)]  # parallel calls, each written as a message of its own
    return said


def _of_list(items: list[Any], role: str, depth: int) -> list[dict[str, Any]]:
    if items and all(isinstance(item, list) for item in items) and not _is_pair(items[0]):
        return messages_of(items[0], role, depth + 1)  # LangChain's batch of one
    if items and all(_is_part(item) for item in items):
        return _of_parts(role, items)  # the parts of one message
    read: list[dict[str, Any]] = []
    for item in map(unpacked, items):
        if tool_as_message(item) is not None:
            continue
        for message in _of_item(item, role, depth):
            before = read[-1] if read else None
            if before and message["role"] == "assistant" == before["role"] and (message.get("item") or before.get("item")):
                read[-1] = _joined([before, message])
            else:
                read.append(message)
    return [
        {key: kept for key, kept in message.items() if key != "item"}
        for message in read
        if message.get("content") not in (None, [])
        or any(message.get(key) for key in ("tool_calls", "reasoning"))
        or message["role"] != "assistant"
    ]


def _of_object(value: dict[str, Any], role: str, depth: int) -> list[dict[str, Any]]:
    if (options := _options(value)) is not None:
        return [answer for answer in (_one(option) for option in options) if answer is not None]
    is_choice = isinstance(value.get("message"), dict) and "role" not in value
    if is_choice or _is_message(value):
        return _of_list([value], role, depth)
    if isinstance(value.get("content"), list):  # an Anthropic answer
        return _of_list([{**value, "role": value.get("role") or "assistant"}], role, depth)
    if isinstance(value.get("content"), dict):  # a Gemini candidate
        return [_finished(message, value) for message in messages_of(value["content"], role, depth + 1)]
    for key in _WRAPPERS:
        inner = value.get(key)
        if inner is None or (role == "assistant" and not isinstance(unpacked(inner), (dict, list))):
            continue  # a text under such a key may be a field of what the model was made to write
        try:
            return _system(value) + messages_of(inner, role, depth + 1)
        except UnreadableMessagesError:
            continue
    if isinstance(value.get("text"), str) and value.keys() <= {"text", "type"}:
        return [{"role": role, "content": value["text"]}]
    if isinstance(value.get("args"), list) and value["args"]:  # what a traced function was called with
        return messages_of(value["args"][0], role, depth + 1)
    raise UnreadableMessagesError(f"no messages under any of the keys {sorted(map(str, value))[:8]}")


def _system(value: dict[str, Any]) -> list[dict[str, Any]]:
    config = unpacked(value.get("config"))
    for holder in (value, config if isinstance(config, dict) else {}):
        said = first(holder, "system", "instructions", "system_instruction", "systemInstruction", "system_instructions")
        if said is not None:
            return [{**message, "role": "system"} for message in messages_of(said, "system")]
    return []


def _of_item(item: Any, role: str, depth: int) -> list[dict[str, Any]]:
    if isinstance(item, str):
        return [{"role": role, "content": item}]
    if _is_pair(item):  # LangChain's ("human", "text")
        return [{"role": _role(item[0], role), "content": item[1]}]
    if isinstance(item, list):
        return _of_list(item, role, depth + 1)
    if not isinstance(item, dict):
        raise UnreadableMessagesError(f"a {type(item).__name__} is no message")
    if isinstance(item.get("kwargs"), dict) and isinstance(item.get("id"), list):  # lc: a serialised object
        return _of_item({"type": str(item["id"][-1]) if item["id"] else "", **item["kwargs"]}, role, depth)
    if isinstance(item.get("data"), dict) and item.keys() <= {"type", "data"}:
        return _of_item({"type": item.get("type"), **item["data"]}, role, depth)
    if isinstance(item.get("message"), dict) and "role" not in item:  # a choice
        inner = _of_item(item["message"], "assistant", depth + 1)
        return [_finished(message, item) for message in inner]
    kind = word(item.get("type"))
    if kind in _ITEMS and "role" not in item:
        return _of_responses_item(kind, item)
    if not _is_message(item):
        return messages_of(item, role, depth + 1)
    return [_finished(message, item) for message in _of_message(item, role)]


def _of_responses_item(kind: str, item: dict[str, Any]) -> list[dict[str, Any]]:
    if kind == "reasoning":
        said = reasoning_of(item)
        return [{"role": "assistant", "content": None, "reasoning": said or None, "item": True}]
    if kind.endswith("_output"):
        return [result_of(item)]
    return [{"role": "assistant", "content": None, "tool_calls": [call_of(item)], "item": True}]


def _of_message(item: dict[str, Any], role: str) -> list[dict[str, Any]]:
    role = _role(item.get("role") or item.get("type"), role)
    more = item["additional_kwargs"] if isinstance(item.get("additional_kwargs"), dict) else {}
    content = item.get("parts") if item.get("parts") is not None else item.get("content")
    calls = [
        call_of(call) for call in first(item, "tool_calls", "toolCalls") or more.get("tool_calls") or () if isinstance(call, dict)
    ]
    if isinstance(item.get("function_call"), dict):
        calls.append(call_of(item["function_call"]))
    if not calls and (written := _written_calls(content)) is not None:
        return [{"role": "assistant", "content": None, "tool_calls": written}]
    if role == "tool" and not (isinstance(content, list) and any(part_of(part)[0] == "result" for part in content)):
        result = {
            "role": "tool",
            "content": said_by_tool(content),
            "tool_call_id": text(first(item, "tool_call_id", "toolCallId")),
        }
        return [{**result, "name": item["name"]} if isinstance(item.get("name"), str) else result]
    read = _of_parts(role, content if isinstance(content, list) else [content])
    main = next((message for message in reversed(read) if message["role"] == role), None)
    if main is None:
        if read and not calls:
            return read
        main = {"role": role, "content": content if isinstance(content, str) else None}
        read.append(main)
    if calls:  # some log the same calls as parts and beside them
        main["tool_calls"] = calls
    reasoning = first(item, "reasoning_content", "reasoning") or first(more, "reasoning_content", "reasoning")
    if isinstance(reasoning, str) and reasoning:
        main["reasoning"] = reasoning
    if role in ("user", "assistant") and text(item.get("name")):
        main["name"] = item["name"]
    if word(item.get("type")) == "message" and role == "assistant":  # an item of the Responses API, whatever its role
        main["item"] = True
    return read


def _of_parts(role: str, parts: list[Any]) -> list[dict[str, Any]]:
    """Tool results as messages of their own, everything else as one message, in the order in which they begin."""
    read: list[dict[str, Any]] = []
    whole: dict[str, Any] | None = None
    content: list[Any] = []
    for part in parts:
        kind, said = part_of(part)
        if kind == "nothing":
            continue
        if kind == "result":
            read.append(said)
            continue
        if whole is None:
            whole = {"role": role, "content": None}
            read.append(whole)
        if kind == "call":
            whole.setdefault("tool_calls", []).append(said)
        elif kind == "reasoning":
            whole["reasoning"] = whole.get("reasoning", "") + said
        else:
            content.append({"type": "text", "text": said} if kind == "text" else said)
    if whole is not None and content:
        texts = [part["text"] for part in content if part.get("type") == "text" and isinstance(part.get("text"), str)]
        whole["content"] = "".join(texts) if len(texts) == len(content) else content
    return read


def _options(value: dict[str, Any]) -> list[Any] | None:
    """The choices of an answer; None where the value is none."""
    for key in ("choices", "candidates"):
        if isinstance(value.get(key), list):
            return value[key]
    if isinstance(value.get("generations"), list):
        held = value["generations"]
        return held[0] if held and isinstance(held[0], list) else held
    if isinstance(value.get("output"), list) and (
        "object" in value or "instructions" in value or "status" in value or len(value) == 1
    ):
        return [value["output"]]
    if isinstance(value.get("output"), dict) and isinstance(value["output"].get("message"), dict):  # Bedrock
        return [{**value["output"], "finish_reason": value.get("stopReason")}]
    return None


def _one(option: Any) -> dict[str, Any] | None:
    """One choice as one assistant message."""
    if isinstance(option, dict) and isinstance(option.get("text"), str) and not isinstance(option.get("message"), dict):
        option = {"role": "assistant", "content": option["text"], "finish_reason": option.get("finish_reason")}
    read = [message for message in messages_of(option, "assistant") if message["role"] == "assistant"]
    if not read:
        return None
    return _finished(_joined(read), option if isinstance(option, dict) else {})


def _joined(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Pieces of one message as one."""
    if len(messages) == 1:
        return messages[0]
    whole: dict[str, Any] = {}
    for message in messages:
        whole.update({key: kept for key, kept in message.items() if kept is not None})
    texts = [message["content"] for message in messages if isinstance(message.get("content"), str)]
    parts = [part for message in messages if isinstance(message.get("content"), list) for part in message["content"]]
    whole["content"] = (
        [*({"type": "text", "text": said} for said in texts), *parts] if parts else "".join(texts) if texts else None
    )
    for key in ("tool_calls", "reasoning"):
        pieces = [message[key] for message in messages if message.get(key)]
        if pieces:
            whole[key] = "".join(pieces) if key == "reasoning" else [call for piece in pieces for call in piece]
    return whole


def _finished(message: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    holders = (said, said.get("generation_info"), said.get("response_metadata"))  # the latter two are LangChain's
    reasons = [
        first(held, "finish_reason", "finishReason", "stop_reason", "stopReason") for held in holders if isinstance(held, dict)
    ]
    reason = next((found for found in reasons if found is not None), None)
    if isinstance(reason, dict):  # LangSmith's JavaScript client keeps the last chunk here
        reason = reason.get("finish_reason")
    return {**message, "finish_reason": reason} if isinstance(reason, str) and message["role"] == "assistant" else message


def _is_message(value: dict[str, Any]) -> bool:
    if isinstance(value.get("parts"), list):
        return True
    kind = str(value.get("type") or "").lower()
    named = isinstance(value.get("role"), str) or kind in ROLES or kind in _NAMES or kind.endswith("messagechunk")
    return named and ("content" in value or "tool_calls" in value or "function_call" in value or "toolCalls" in value)


def _is_part(item: Any) -> bool:
    """A part of a message, and no message, choice or Responses item."""
    if not isinstance(item, dict) or any(key in item for key in ("role", "message", "kwargs", "finish_reason")):
        return False
    return word(item.get("type")) not in _ITEMS and part_of(item)[0] != "other"


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and all(isinstance(part, str) for part in item) and _role(item[0], "") != ""


def _role(name: Any, default: str) -> str:
    role = str(name or "").lower()
    role = ROLES.get(role.removesuffix("chunk"), role)
    return role if role in _NAMES else default


def _written_calls(content: Any) -> list[dict[str, Any]] | None:
    """Calls that a framework (Koog) wrote as the text of a message: a JSON list of OpenAI tool calls and nothing else."""
    calls = unpacked(content) if isinstance(content, str) and content.lstrip().startswith("[{") else None
    if not isinstance(calls, list) or not all(
        isinstance(call, dict)
        and call.get("type") == "function"
        and isinstance(call.get("function"), dict)
        and "arguments" in call["function"]
        for call in calls
    ):
        return None
    return [call_of(call) for call in calls]
