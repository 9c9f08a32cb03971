"""Format `openai_finetune`: training sets for chat models, `{messages, tools?}` a line, or preference pairs.

Whoever made the set wrote or chose its assistant turns: they are demonstrations and never sampled by a logged policy. Tool
calls that stand in the text as XML stay there: it is what the model is meant to write. Preference pairs are OpenAI's
(`input`, `preferred_output`, `non_preferred_output`) and the common `prompt`, `chosen`, `rejected`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.calls import chat_message
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.demonstrations import Variants, bundle_of, facts_of, spelled
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.openai_chat import tools_of
from pipelines.landing.shapes import careful, unpacked
from pipelines.landing.wrappings import split_rows

_KEYS = frozenset(
    {"messages", "tools", "functions", "function_call", "parallel_tool_calls", "weight", "id", "source", "dataset", "split"}
    | {"metadata", "instance_id", "category", "language", "reference_answer"}
)
"""What rows of training sets hold beside their messages; a row with anything else may be a log of another tool."""


class OpenAIFinetune:
    """The format; see LogFormat."""

    name = "openai_finetune"
    parser_version = 1
    what = "training sets for chat models (messages, preference pairs); demonstrations, nothing sampled"
    gives = frozenset[str]()
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """A line or the array's first item holds a conversation and nothing of a call, or a preference pair."""
        return _is_row(head.item) or any(_is_row(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per row."""
        return split_rows(Head(path), start, line, _facts)

    def spell(self, value: Any) -> Spelled:
        """The messages; of a pair both conversations."""
        return spelled(_variants(value), _tools(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The conversation of one row, or the two of a pair."""
        return bundle_of(records, _variants)


def _is_row(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if {"input", "preferred_output", "non_preferred_output"} <= value.keys():
        return True
    if {"chosen", "rejected"} <= value.keys() and "conversations" not in value:
        return _are_messages(value["chosen"])
    return value.keys() <= _KEYS and _are_messages(value.get("messages"))


def _are_messages(messages: Any) -> bool:
    """Chat messages; those with a `value` in their parts are another format's."""
    if not isinstance(messages, list) or not messages or not isinstance(messages[0], dict) or "role" not in messages[0]:
        return False
    content = messages[0].get("content")
    if isinstance(content, list):
        return not any(isinstance(part, dict) and "value" in part for part in content)
    return content is None or isinstance(content, str)


@careful
def _facts(value: Any) -> Facts:
    return facts_of(value, _variants, _tools)


def _tools(value: dict[str, Any]) -> list[Any] | None:
    asked = value["input"] if isinstance(value.get("input"), dict) else value
    return tools_of({**asked, "tools": unpacked(asked.get("tools"))})


def _variants(value: dict[str, Any]) -> Variants:
    if "preferred_output" in value:
        asked = value["input"]["messages"] if isinstance(value.get("input"), dict) else value.get("input")
        return {
            "preferred": [*_messages(asked), *_messages(value["preferred_output"])],
            "non_preferred": [*_messages(asked), *_messages(value.get("non_preferred_output"))],
        }
    if "chosen" in value:
        asked = [] if value.get("prompt") is None else _messages(value["prompt"])
        return {name: [*asked, *_messages(value.get(name))] for name in ("chosen", "rejected")}
    return {"": _messages(value.get("messages"))}


def _messages(messages: Any) -> list[dict[str, Any]]:
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, list):
        raise BadPieceError("wrong_shape", "no messages")
    return [chat_message(message) for message in messages]
