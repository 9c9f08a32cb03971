"""One logged request to a model with its answers, in OpenAI's words, whatever vendor's words it was logged in.

The formats of single calls (gateways, recorded HTTP traffic, completion logs) read a record into a `Call`; from there on
they are alike: its turns, the bundle that it belongs to, and the attempts that the calls of a bundle are (stitching.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError, Facts, utc
from pipelines.landing.format import Attempt, Bundle, Spelled, StoredRecord, call_entry, text_of, uniform
from pipelines.landing.roots import root_of
from pipelines.landing.stitching import LoggedCall, attempt_of, chains

_SESSION_KEYS = ("session_id", "conversation_id", "thread_id", "sessionId", "conversationId", "threadId")
"""Not the trace's id: most gateways make a new one for every call, and calls apart are never stitched."""
_MILLISECONDS = 100_000_000_000
"""Epoch numbers above this are milliseconds: as seconds they would lie after the year 5000."""


@dataclass(kw_only=True)
class Answer:
    """One choice of a response."""

    message: dict[str, Any]
    finish_reason: str | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None


@dataclass(kw_only=True)
class Call:
    """One record: what was asked, and the answers (none where the call failed or only the request was logged)."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    tools: list[Any] | None = None
    model: str | None = None
    call_id: str | None = None
    """The vendor's id of the response."""
    session: str | None = None
    """The log's own name of the attempt or conversation; None: calls are bundled by their root."""
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    num_prompt_tokens: int | None = None
    num_reply_tokens: int | None = None
    cost_usd: float | None = None
    fault: str | None = None
    """One of reasons.FAULTS where the call failed."""


def spelled(call: Call) -> Spelled:
    """The turns of the request, then the answers."""
    messages = [*call.messages, *(answer.message for answer in call.answers)]
    return Spelled(turns=[uniform(message, call=None) for message in messages], tools=call.tools)


def facts_of(call: Call, *, vendor_id: str | None = None) -> Facts:
    """Where a call belongs. BadPieceError where it holds neither a request nor an answer: nothing could be made of it."""
    if not call.messages and not call.answers:
        raise BadPieceError("wrong_shape", "neither messages nor an answer are logged: there is nothing to learn from")
    return Facts(vendor_id=vendor_id, bundle_ref=_bundle_ref(call), time=call.ended_at or call.started_at)


def bundle_of(records: Sequence[tuple[StoredRecord, Call]], **facts: Any) -> Bundle:
    """The attempts that the calls of some records are; `facts` are fields of every Attempt."""
    standing, copies = _once(records)
    logged = [one for record, call in standing for one in _logged(record, call)]
    found = chains(logged, one_session=any(call.session is not None for _, call in standing))
    attempts: list[Attempt] = [attempt_of(chain, **facts) for chain in found]
    holder = {record_id: attempt.ref for attempt in attempts for record_id in attempt.record_ids}
    left: dict[str, tuple[str | None, str]] = {copy: (holder[stands], "exact") for copy, stands in copies.items()}
    return Bundle(attempts=attempts, left=left)


def chat_message(message: Any) -> dict[str, Any]:
    """An OpenAI chat message with today's names: `function_call` and role `function` are the old ones of tool calls.

    BadPieceError where it is none.
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadPieceError("wrong_shape", "a message without a role")
    content = message.get("content")
    if not (content is None or isinstance(content, str | list)):
        raise BadPieceError("wrong_shape", f"content of a message is a {type(content).__name__}")
    made: dict[str, Any] = {**message, "content": _content(content)}
    if content is None and isinstance(message.get("refusal"), str):
        made["content"] = message["refusal"]
    made.pop("reasoning", None)
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    made["reasoning_content"] = reasoning if isinstance(reasoning, str) else None
    tool_calls = message.get("tool_calls") or []
    if not isinstance(tool_calls, list):
        raise BadPieceError("wrong_shape", "tool_calls is no list")
    if isinstance(message.get("function_call"), dict) and not tool_calls:
        tool_calls = [{"id": None, "function": message["function_call"]}]
    made["tool_calls"] = [_tool_call(tool_call) for tool_call in tool_calls]
    if message["role"] == "function":
        made["role"] = "tool"
    return made


def moment(value: Any) -> datetime.datetime | None:
    """A time as logs write it: ISO 8601, or seconds or milliseconds since 1970; None where it is neither."""
    if isinstance(value, str) and value:
        try:
            return utc(value)
        except BadPieceError:
            return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        try:
            return datetime.datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS else value, datetime.UTC)
        except (ValueError, OverflowError, OSError):
            return None
    return None


def count(value: Any) -> int | None:
    """A number of tokens; None where it is no whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def cost(value: Any) -> float | None:
    """US dollars; None where it is no number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def session_of(*places: Any) -> str | None:
    """The first name of a conversation that one of some objects or their `metadata` holds."""
    for place in places:
        for held in (place, place.get("metadata") if isinstance(place, dict) else None):
            if isinstance(held, dict):
                for key in _SESSION_KEYS:
                    if isinstance(held.get(key), str) and held[key]:
                        return held[key]
    return None


def as_json(text: Any) -> Any:
    """What a JSON string holds, where it holds an object or a list; everything else as it is."""
    if isinstance(text, str) and text[:1] in ("{", "["):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return text


def _bundle_ref(call: Call) -> str | None:
    if call.session is not None:
        return f"session:{call.session}"
    if not call.messages:
        return None
    return root_of(spelled(call).turns[: len(call.messages)])


def _once(
    records: Sequence[tuple[StoredRecord, Call]],
) -> tuple[list[tuple[StoredRecord, Call]], dict[str, str]]:
    """The records without those that say again what another says under the same id, and which one stands for each."""
    standing: dict[Any, tuple[StoredRecord, Call]] = {}
    keys: dict[str, Any] = {}
    for record, call in sorted(records, key=lambda pair: (-_fullness(pair[1]), pair[0].record_id)):
        said = tuple(turn["id"] for turn in record.spelled.turns)
        key = (record.record_id,) if call.call_id is None else (call.call_id, len(call.messages), said)
        standing.setdefault(key, (record, call))
        keys[record.record_id] = key
    kept = {record.record_id for record, _ in standing.values()}
    copies = {record_id: standing[key][0].record_id for record_id, key in keys.items() if record_id not in kept}
    return list(standing.values()), copies


def _fullness(call: Call) -> int:
    known = (call.tools, call.model, call.started_at, call.ended_at, call.num_prompt_tokens, call.cost_usd)
    return sum(1 for one in known if one is not None)


def _logged(record: StoredRecord, call: Call) -> list[LoggedCall]:
    prompt, answers = record.spelled.turns[: len(call.messages)], record.spelled.turns[len(call.messages) :]
    alone = len(answers) <= 1  # usage is of all choices together: it cannot be told apart
    common: dict[str, Any] = {
        "record_ids": [record.record_id],
        "prompt": prompt,
        "call_id": call.call_id,
        "tools": call.tools,
        "model": call.model,
        "started_at": call.started_at,
        "ended_at": call.ended_at,
        "num_prompt_tokens": call.num_prompt_tokens,
        "fault": call.fault,
    }
    if not answers:
        return [LoggedCall(**common, answer=None, num_reply_tokens=call.num_reply_tokens, cost_usd=call.cost_usd)]
    made = []
    for choice, (turn, answer) in enumerate(zip(answers, call.answers, strict=True)):
        sampled = answer.token_ids if answer.token_ids is not None else answer.logprobs
        entry = call_entry(
            call_id=call.call_id,
            prompt_token_ids=answer.prompt_token_ids,
            token_ids=answer.token_ids,
            logprobs=answer.logprobs,
            finish_reason=answer.finish_reason,
        )
        made.append(
            LoggedCall(
                **common,
                answer=turn,
                choice=choice,
                entry=entry,
                num_reply_tokens=call.num_reply_tokens if alone else None if sampled is None else len(sampled),
                cost_usd=call.cost_usd if alone else None,
            )
        )
    return made


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
        elif isinstance(part, dict):
            text = part.get("text") if part.get("type") in ("text", "input_text", "output_text") else None
            parts.append({"type": "text", "text": text} if isinstance(text, str) else part)
        else:
            raise BadPieceError("wrong_shape", "a content part is no object")
    return parts if any(part.get("type") != "text" for part in parts) else text_of(parts)


def _tool_call(tool_call: Any) -> dict[str, Any]:
    if not isinstance(tool_call, dict):
        raise BadPieceError("wrong_shape", "a tool call is no object")
    custom = tool_call.get("custom")
    function = {"name": custom.get("name"), "arguments": custom.get("input")} if isinstance(custom, dict) else None
    function = function or tool_call.get("function")
    if not isinstance(function, dict):
        raise BadPieceError("wrong_shape", "a tool call without a function")
    return {**tool_call, "function": function}
