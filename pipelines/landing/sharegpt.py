"""Format `sharegpt`: conversations of ShareGPT and LLaMA-Factory, training sets like openai_finetune's.

`conversations` of {from, value}, or LLaMA-Factory's v1 `messages` whose content parts are {type, value}; pairs as
`chosen`/`rejected` or `chosen_messages`/`rejected_messages`. Traps: `tools` is a JSON string; a function call's value is a
JSON string of one call or a list; results of parallel calls are merged into one observation and are told apart here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.demonstrations import Variants, bundle_of, facts_of, spelled
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.shapes import careful, unpacked
from pipelines.landing.wrappings import split_rows

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "function_call": "assistant",
    "function-call": "assistant",
    "observation": "tool",
    "function_response": "tool",
    "function-response": "tool",
    "tool": "tool",
    "system": "system",
}
_CALLS = ("function_call", "function-call")


class ShareGPT:
    """The format; see LogFormat."""

    name = "sharegpt"
    parser_version = 1
    what = "ShareGPT and LLaMA-Factory conversations; demonstrations, nothing sampled"
    gives = frozenset[str]()
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """A line or the array's first item holds turns of `from` and `value`, or messages of parts with a `value`."""
        return _is_row(head.item) or any(_is_row(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per conversation."""
        return split_rows(Head(path), start, line, _facts)

    def spell(self, value: Any) -> Spelled:
        """The turns; of a pair those of both conversations."""
        return spelled(_variants(value), _tools(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The conversation of one row, or the two of a pair."""
        return bundle_of(records, _variants)


def _is_row(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    turns = value.get("conversations")
    if isinstance(turns, list) and turns and isinstance(turns[0], dict):
        return {"from", "value"} <= turns[0].keys()
    messages = value.get("messages", value.get("chosen_messages"))
    if not isinstance(messages, list) or not messages or not isinstance(messages[0], dict):
        return False
    content = messages[0].get("content")
    return isinstance(content, list) and bool(content) and isinstance(content[0], dict) and {"type", "value"} <= content[0].keys()


@careful
def _facts(value: Any) -> Facts:
    return facts_of(value, _variants, _tools)


def _tools(value: dict[str, Any]) -> list[Any] | None:
    tools = unpacked(value.get("tools"))
    return tools if isinstance(tools, list) and tools else None


def _variants(value: dict[str, Any]) -> Variants:
    if "chosen_messages" in value:
        return {name: _parts_messages(value.get(f"{name}_messages")) for name in ("chosen", "rejected")}
    if "messages" in value:
        return {"": _parts_messages(value["messages"])}
    system = value.get("system")
    messages = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    messages += _turns(value.get("conversations"))
    if "chosen" in value:
        return {name: [*messages, *_turns([value.get(name)])] for name in ("chosen", "rejected")}
    return {"": messages}


def _turns(turns: Any) -> list[dict[str, Any]]:
    """Messages of {from, value} turns."""
    if not isinstance(turns, list):
        raise BadPieceError("wrong_shape", "conversations is no list")
    found: list[dict[str, Any]] = []
    for turn in turns:
        if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
            raise BadPieceError("wrong_shape", "a turn without from and value")
        speaker, said = turn.get("from"), turn["value"]
        if not isinstance(speaker, str) or speaker not in _ROLES:
            raise BadPieceError("wrong_shape", f"nobody knows who {str(speaker)[:40]!r} is")
        calls = _called(said) if speaker in _CALLS else []
        if calls:
            found.append({"role": "assistant", "content": None, "tool_calls": calls})
        elif _ROLES[speaker] == "tool":
            found += _results(said, found[-1] if found else {})
        else:
            found.append({"role": _ROLES[speaker], "content": said})
    return found


def _parts_messages(messages: Any) -> list[dict[str, Any]]:
    """Messages whose content is a list of {type, value} parts."""
    if not isinstance(messages, list):
        raise BadPieceError("wrong_shape", "messages is no list")
    found: list[dict[str, Any]] = []
    for message in messages:
        parts = message.get("content") if isinstance(message, dict) else None
        if isinstance(parts, str):
            parts = [{"type": "text", "value": parts}]
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            raise BadPieceError("wrong_shape", "a message without parts")
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise BadPieceError("wrong_shape", f"nobody knows who {str(role)[:40]!r} is")
        texts: dict[str, str] = {}
        calls, others = [], []
        for part in parts:
            kind, said = part.get("type"), part.get("value")
            called = _called(said) if kind == "tool_call" else []
            if called:
                calls += called
            elif kind in ("text", "reasoning", "tool_call") and isinstance(said, str):
                name = "reasoning" if kind == "reasoning" else "text"
                texts[name] = texts.get(name, "") + said
            else:
                others.append(part)
        if _ROLES[role] == "tool" and "text" in texts:
            found += _results(texts["text"], found[-1] if found else {})
            continue
        content: Any = texts.get("text")
        if others:
            content = [*([{"type": "text", "text": content}] if content else []), *others]
        made = {"role": _ROLES[role], "content": content, "tool_calls": calls}
        found.append({**made, "reasoning_content": texts["reasoning"]} if "reasoning" in texts else made)
    return found


def _called(said: Any) -> list[dict[str, Any]]:
    """The calls that a JSON string holds; none where it is no such string."""
    held = unpacked(said)
    calls = held if isinstance(held, list) else [held]
    if not calls or not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        return []
    return [
        {"id": call.get("id"), "function": {"name": call["name"], "arguments": call.get("arguments", call.get("parameters"))}}
        for call in calls
    ]


def _results(said: str, before: dict[str, Any]) -> list[dict[str, Any]]:
    """Tool messages of one observation: several where it holds one result for each of several calls.

    Calls have no ids in such sets; they get those of their results where names agree one by one.
    """
    held, calls = unpacked(said), before.get("tool_calls") or []
    if not isinstance(held, list) or len(held) != len(calls):
        return [{"role": "tool", "content": said}]
    if not all(isinstance(one, dict) and isinstance(one.get("content"), str) for one in held):
        return [{"role": "tool", "content": said}]
    if any(one.get("name") not in (None, call["function"]["name"]) for one, call in zip(held, calls, strict=True)):
        return [{"role": "tool", "content": said}]
    found = []
    for one, call in zip(held, calls, strict=True):
        call["id"] = call["id"] or one.get("tool_call_id")
        found.append(
            {"role": "tool", "content": one["content"], "tool_call_id": one.get("tool_call_id"), "name": one.get("name")}
        )
    return found
