"""The chats that are read off Langfuse's exports against those that Langfuse itself reads off them.

The oracle says per observation which ChatML its input and output stand for. Entries of calls are compared as `spell` gives
them, those of other spans as `messages_of` reads them. What differs in format alone is normalised on both sides:

- role `model` is `assistant`; a message without role takes the place's own (input: user, output: assistant);
- Gemini's function responses stand under role `user` there and are role `tool` here;
- content that is JSON counts by its value, an absent content and an empty one are the same; so are arguments;
- ids of calls: Gemini writes none, the oracle then an empty one;
- a choice that the oracle leaves wrapped (`json.message`) is unwrapped; calls that Koog writes as the text of a message are
  calls; a message that says nothing is none.

docs/formats/langfuse_oracle.md lists the files and what differs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.landing.format import SourceRecord, uniform
from pipelines.landing.langfuse import Langfuse
from pipelines.landing.provider_messages import messages_of

AT_LEAST = 0.95
DIFFERENT = {("042f9350c3729147", "output")}
"""Entries that are known to differ: Koog wrote the two parallel calls of one answer as two messages, here they are one."""


def entries(shared_logs: Path) -> Iterator[tuple[str, str, str, Any, dict[str, Any]]]:
    """File, observation id, side, the oracle's chat and the observation of every entry that the oracle could read."""
    for path in sorted((shared_logs / "langfuse_export_chatml").glob("*.json")):
        expected = json.loads(path.read_bytes())
        export = shared_logs / "langfuse_export" / path.name.replace(".chatml.json", ".trace.json")
        if not export.exists():
            continue
        values = [piece.value for piece in Langfuse().split(export) if isinstance(piece, SourceRecord)]
        observations = {value["observation"]["id"]: value for value in values if "observation" in value}
        for span_id, sides in expected.items():
            for side, read in sides.items():
                if read["success"]:
                    yield path.name, span_id, side, read["data"], observations[span_id]


def test_the_chats_are_those_of_the_oracle(shared_logs: Path, capsys: Any) -> None:
    counted: Counter[str] = Counter()
    matched: Counter[str] = Counter()
    different: dict[tuple[str, str], tuple[Any, Any]] = {}
    for name, span_id, side, expected, value in entries(shared_logs):
        theirs = normalised([_unwrapped(message) for message in expected], side)
        ours = normalised(_read(value, side), side)
        counted[name] += 1
        if ours == theirs:
            matched[name] += 1
        else:
            different[span_id, side] = (ours, theirs)
    share = matched.total() / counted.total()
    with capsys.disabled():
        per_file = ", ".join(f"{name.split('.')[0]} {matched[name]}/{counted[name]}" for name in sorted(counted))
        print(f"\nlangfuse oracle: {matched.total()} of {counted.total()} entries match ({share:.1%}): {per_file}")
    assert different.keys() == DIFFERENT, different
    assert counted.total() >= 30 and share >= AT_LEAST


def normalised(messages: list[dict[str, Any]], side: str) -> list[list[Any]]:
    """Role, content, calls and the call that is answered, of every message that says something."""
    found = []
    for message in messages:
        role = {"model": "assistant", None: "user" if side == "input" else "assistant"}.get(
            message.get("role"), message.get("role")
        )
        content = _json(message.get("content"))
        calls = [_call(call) for call in message.get("tool_calls") or ()]
        if (
            not calls
            and isinstance(content, list)
            and content
            and all(isinstance(part, dict) and "function" in part for part in content)
        ):
            role, content, calls = "assistant", None, [_call(call) for call in content]
        if content in (None, "") and not calls:
            continue
        answers = message.get("tool_call_id") or None
        # a result that names no call: Gemini's, under role user there
        is_result = role == "tool" or (side == "input" and isinstance(content, dict))
        found.append(["tool" if is_result else role, content or None, calls, answers])
    return found


def _read(value: dict[str, Any], side: str) -> list[dict[str, Any]]:
    observation = value["observation"]
    if observation["type"] == "GENERATION":
        turns = Langfuse().spell(value).turns
        return [turn for turn in turns if turn["sampled"] == (side == "output")]
    role = "user" if side == "input" else "assistant"
    return [uniform(message, call=None) for message in messages_of(observation[side], role)]


def _unwrapped(message: dict[str, Any]) -> dict[str, Any]:
    inner = message.get("json")
    return inner["message"] if "role" not in message and isinstance(inner, dict) and "message" in inner else message


def _call(call: dict[str, Any]) -> list[Any]:
    function = call.get("function", call)
    return [call.get("id") or None, function["name"], _json(function["arguments"])]


def _json(text: Any) -> Any:
    if isinstance(text, str) and text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
