"""One logged request to a model with its answers, in OpenAI's words, whatever vendor's words it was logged in.

The formats of single calls (gateways, recorded HTTP traffic, completion logs) read a record into a `Call`; from there on
they are alike: its turns, the bundle that it belongs to, and the attempts that the calls of a bundle are (stitching.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Attempt, Bundle, Spelled, StoredRecord, call_entry, text_of, uniform
from pipelines.landing.moments import moment
from pipelines.landing.roots import root_of
from pipelines.landing.shapes import cost, unpacked
from pipelines.landing.stitching import LoggedCall, attempt_of, chains

_CONVERSATION_KEYS = ("session_id", "conversation_id", "thread_id", "sessionId", "conversationId", "threadId")
"""Not the trace's id: most gateways make a new one for every call, and calls apart are never stitched."""
_REQUEST_KEYS = ("request", "input", "body", "kwargs", "request_body", "inputs")
_RESPONSE_KEYS = ("response", "output", "completion", "response_body", "outputs")
_STARTED = ("started_at", "start_time", "request_time", "requested_at")
_ENDED = ("ended_at", "end_time", "completed_at", "response_time", "timestamp", "created_at", "time", "ts")


@dataclass(kw_only=True)
class Answer:
    """One choice of a response."""

    message: dict[str, Any]
    before: list[dict[str, Any]] = field(default_factory=list)
    """Messages of the same response before it: the vendor's own tools, what was said to them and what they said."""
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
    conversation: str | None = None
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
    messages = [*call.messages, *(message for answer in call.answers for message in (*answer.before, answer.message))]
    return Spelled(turns=[uniform(message, call=None) for message in messages], tools=call.tools)


def facts_of(call: Call, *, vendor_id: str | None = None) -> Facts:
    """Where a call belongs. BadPieceError where it holds neither a request nor an answer: nothing could be made of it."""
    if not call.messages and not call.answers:
        raise BadPieceError("wrong_shape", "neither messages nor an answer are logged: there is nothing to learn from")
    turns = spelled(call).turns  # what cannot be spelled is refused here and not found out in the next stage
    bundle_ref = None if call.conversation is None else f"conversation:{call.conversation}"
    if bundle_ref is None and call.messages:
        bundle_ref = root_of(turns[: len(call.messages)])
    return Facts(vendor_id=vendor_id, bundle_ref=bundle_ref, time=call.ended_at or call.started_at)


def own_facts(value: Any, read: Callable[[dict[str, Any]], Call]) -> Facts:
    """Where a call that is a record by itself belongs, under the id that its response gave it."""
    if not isinstance(value, dict):
        raise BadPieceError("wrong_shape", "no object")
    call = read(value)
    return facts_of(call, vendor_id=call.call_id)


def bundle_of(records: Sequence[tuple[StoredRecord, Call]], **facts: Any) -> Bundle:
    """The attempts that the calls of some records are; `facts` are fields of every Attempt."""
    standing, copies = _once(records)
    logged = [one for record, call in standing for one in _logged(record, call)]
    found = chains(logged, one_conversation=any(call.conversation is not None for _, call in standing))
    attempts: list[Attempt] = [attempt_of(chain, **facts) for chain in found]
    holder = {record_id: attempt.ref for attempt in attempts for record_id in attempt.record_ids}
    left: dict[str, tuple[str | None, str]] = {copy: (holder[stands], "exact") for copy, stands in copies.items()}
    return Bundle(attempts=attempts, left=left)


def longest_states(
    records: Sequence[StoredRecord], state: Callable[[dict[str, Any]], tuple[Any, int] | None]
) -> tuple[list[StoredRecord], dict[str, str]]:
    """Of records that are states of one growing answer those that hold most, and for every other the one that stands for it.

    `state` says what a value is a state of and how much it holds; None where it is whole by itself.
    """
    kept: list[StoredRecord] = []
    longest: dict[Any, StoredRecord] = {}
    of: dict[str, Any] = {}
    for record in sorted(records, key=lambda record: record.record_id):
        if (found := state(record.value)) is None:
            kept.append(record)
            continue
        name, size = found
        of[record.record_id] = name
        held = longest.get(name)
        if held is None or size > (state(held.value) or (None, 0))[1]:
            longest[name] = record
    standing = {record.record_id for record in longest.values()}
    shorter = {record_id: longest[name].record_id for record_id, name in of.items() if record_id not in standing}
    return [*kept, *longest.values()], shorter


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


def conversation_of(*places: Any) -> str | None:
    """The first name of a conversation that one of some objects or their `metadata` holds."""
    for place in places:
        for held in (place, place.get("metadata") if isinstance(place, dict) else None):
            if isinstance(held, dict):
                for key in _CONVERSATION_KEYS:
                    if isinstance(held.get(key), str) and held[key]:
                        return held[key]
    return None


def has_messages(value: Any) -> bool:
    """Whether an object holds a list of messages with roles."""
    messages = value.get("messages") if isinstance(value, dict) else None
    return isinstance(messages, list) and bool(messages) and isinstance(messages[0], dict) and "role" in messages[0]


def request_and_response(value: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The two halves of a logged call, in whatever wrapping; the response is None where it was not logged."""
    response = next((unpacked(value[key]) for key in _RESPONSE_KEYS if value.get(key) is not None), None)
    if isinstance(response, dict) and isinstance(response.get("body"), dict | str):  # as HTTP clients wrap it
        response = unpacked(response["body"])
    if isinstance(value.get("messages"), list):
        return value, response
    request = next((unpacked(value[key]) for key in _REQUEST_KEYS if value.get(key) is not None), None)
    if isinstance(request, dict) and isinstance(request.get("body"), dict | str):
        request = unpacked(request["body"])
    if isinstance(request, list):
        return {"messages": request, "tools": value.get("tools"), "model": value.get("model")}, response
    return request if isinstance(request, dict) else {}, response


def with_row(call: Call, row: dict[str, Any]) -> Call:
    """The call with what the row around request and response says: times, cost, an error."""
    started = next((found for key in _STARTED if (found := moment(row.get(key)))), None)
    ended = next((found for key in _ENDED if (found := moment(row.get(key)))), None)
    call.started_at, call.ended_at = started or call.started_at, ended or call.ended_at
    if call.cost_usd is None:
        call.cost_usd = cost(row.get("cost"))
    if call.fault is None and not call.answers and row.get("error"):
        call.fault = "model_error"
    return call


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
    prompt, position = record.spelled.turns[: len(call.messages)], len(call.messages)
    alone = len(call.answers) <= 1  # usage is of all choices together: it cannot be told apart
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
    if not call.answers:
        return [LoggedCall(**common, answer=None, num_reply_tokens=call.num_reply_tokens, cost_usd=call.cost_usd)]
    made = []
    for choice, answer in enumerate(call.answers):
        turns = record.spelled.turns[position : position + len(answer.before) + 1]
        position += len(turns)
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
                answer=turns[-1],
                before=turns[:-1],
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
