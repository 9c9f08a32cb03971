"""Format `openai_responses`: requests and responses of OpenAI's Responses API, and its recorded SSE.

Read are response objects alone, `{request, response}` and its like, and streams (their last event holds the response).
Traps: one answer is a list of items (reasoning, message, function calls) that is one turn here; the output object repeats
the request's `instructions` and `tools`, not its `input`; a request with `previous_response_id` holds only what is new, so
its prompt is put together from the responses before it. Such a record does not say where its conversation began: records
without a conversation's id are bundled by what a harness sends with every request (instructions, cache key, user).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.ids import canonical_json
from pipelines.landing.calls import Answer, Call, bundle_of, conversation_of, facts_of, request_and_response, spelled, with_row
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_document
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, Unfinished
from pipelines.landing.head import Head
from pipelines.landing.json_array import split_array
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import moment
from pipelines.landing.pieces import bad, made
from pipelines.landing.response_items import messages_of
from pipelines.landing.shapes import careful, cost, count, text
from pipelines.landing.sse import behind, events_in, events_of, first_events

_LAST = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_GOING_ON = ("in_progress", "queued")
_OTHERS = ("recorder", "call_type", "responses_create_params", "reward", "trajectory")


class OpenAIResponses:
    """The format; see LogFormat."""

    name = "openai_responses"
    parser_version = 2
    what = "OpenAI Responses API, one response (with its request) per record, or recorded SSE"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """A line, the document or the array's first item is a response or holds one; or a stream of one begins."""
        if _is_row(head.item) or _is_row(head.object) or any(_is_row(row) for row in head.rows):
            return True
        return any(_is_event(event) for event in first_events(head))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per response."""
        head = Head(path)
        if head.items:
            return (piece for piece in split_array(path, _facts) if piece.byte_start >= start)
        if any(_is_row(row) for row in head.rows):
            return split_lines(path, start, line, _facts)
        if any(_is_event(event) for event in first_events(head)):
            return behind(_streams(path), start, line)
        return split_document(path, start, _facts)

    def spell(self, value: Any) -> Spelled:
        """Instructions and input, then the output."""
        return spelled(_call(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts that these calls are; what a request left out is taken from the responses that it names."""
        earlier = _earlier_states(records)
        kept = [record for record in records if record.record_id not in earlier]
        whole = _Conversations(kept, {record.record_id: _call(record.value) for record in kept})
        bundle = bundle_of([whole.completed(record) for record in kept])
        holder = {record_id: attempt.ref for attempt in bundle.attempts for record_id in attempt.record_ids}
        holder.update({record_id: ref for record_id, (ref, _) in bundle.left.items() if ref is not None})
        left = {record_id: (holder.get(stands), "superseded") for record_id, stands in earlier.items()}
        return Bundle(attempts=bundle.attempts, left={**bundle.left, **left})


class _Conversations:
    """Prompts that are written out, where requests only name the response that they go on from."""

    def __init__(self, records: Sequence[StoredRecord], calls: Mapping[str, Call]) -> None:
        self.calls = calls
        self.by_id: dict[str, StoredRecord] = {}
        for record in sorted(records, key=lambda record: record.record_id, reverse=True):
            if (call_id := calls[record.record_id].call_id) is not None:
                self.by_id[call_id] = record

    def completed(self, record: StoredRecord) -> tuple[StoredRecord, Call]:
        """The record and its call with the whole prompt; from where its conversation is logged."""
        earlier: list[StoredRecord] = []
        seen, name = {record.record_id}, _previous(record.value)
        while name is not None and (found := self.by_id.get(name)) is not None and found.record_id not in seen:
            earlier.append(found)
            seen.add(found.record_id)
            name = _previous(found.value)
        call = self.calls[record.record_id]
        system = _num_instructions(call)
        turns, messages = list(record.spelled.turns[:system]), list(call.messages[:system])
        for before in reversed(earlier):
            said = self.calls[before.record_id]
            skipped = _num_instructions(said)
            turns += before.spelled.turns[skipped:]
            messages += [*said.messages[skipped:], *(m for answer in said.answers for m in (*answer.before, answer.message))]
        turns += record.spelled.turns[system:]
        messages += call.messages[system:]
        return replace(record, spelled=replace(record.spelled, turns=turns)), replace(call, messages=messages)


def is_response(value: Any) -> bool:
    """Whether an object is a response."""
    return isinstance(value, dict) and value.get("object") == "response" and isinstance(value.get("output"), list)


def is_request(value: Any) -> bool:
    """Whether an object is a request to the Responses API."""
    return isinstance(value, dict) and "input" in value and isinstance(value["input"], str | list) and "messages" not in value


def call_of(request: dict[str, Any], response: Any) -> Call:
    """A request and its response (an object, SSE text, an error; None where not logged) as a Call."""
    if isinstance(response, str) and "data:" in response:
        response = _last_of(events_of(response))
    answered = response if isinstance(response, dict) else {}
    instructions = request.get("instructions") or answered.get("instructions")
    asked = messages_of(request.get("input"))
    # without the input nobody knows what was asked, and instructions alone would make strangers equal
    system = messages_of(instructions, role="system") if asked else []
    tools = request.get("tools") or answered.get("tools")
    call = Call(
        messages=[*system, *asked],
        tools=tools if isinstance(tools, list) and tools else None,
        model=text(answered.get("model")) or text(request.get("model")),
        call_id=text(answered.get("id")),
        started_at=moment(answered.get("created_at")),
        ended_at=moment(answered.get("completed_at")),
    )
    if answered.get("error") or answered.get("status") in ("failed", "cancelled"):
        call.fault = "aborted" if answered.get("status") == "cancelled" else "model_error"
    elif answered.get("status") in _GOING_ON:
        call.fault = "aborted"  # its end was never logged
    *before, message = messages_of(answered.get("output"), role="assistant") or [None]
    if message is not None:
        why = answered.get("incomplete_details")
        reason = text(why.get("reason")) if isinstance(why, dict) else None
        call.answers = [Answer(message=message, before=[m for m in before if m], finish_reason=reason or _ended(answered))]
    usage = answered.get("usage")
    if isinstance(usage, dict):
        call.num_prompt_tokens, call.num_reply_tokens = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
        call.cost_usd = cost(usage.get("cost"))
    return call


def _ended(response: dict[str, Any]) -> str | None:
    return "stop" if response.get("status") == "completed" else text(response.get("status"))


def _is_row(value: Any) -> bool:
    if not isinstance(value, dict) or any(key in value for key in _OTHERS):
        return False
    if is_response(value):
        return True
    request, response = request_and_response(value)
    if isinstance(response, str) and "response.c" in response:
        return is_request(request)
    return is_response(response)


@careful
def _facts(value: Any) -> Facts:
    if not isinstance(value, dict):
        raise BadPieceError("wrong_shape", "no object")
    call = _call(value)
    read = facts_of(call, vendor_id=call.call_id)
    if read.bundle_ref is None and call.call_id is not None:  # its states come one after the other
        return replace(read, bundle_ref=f"response:{call.call_id}")
    if call.conversation is not None or not call.messages:
        return read
    return replace(read, bundle_ref=_context(value) or read.bundle_ref)


def _earlier_states(records: Sequence[StoredRecord]) -> dict[str, str]:
    """Records that hold a response before it ended (a stream read early, a response that was polled), and for each the
    record of the same response that holds most."""
    states: dict[str, list[tuple[bool, int, str]]] = {}
    for record in records:
        response = _parts(record.value)[1]
        if isinstance(response, dict) and (name := text(response.get("id"))) is not None:
            ended = response.get("status") not in _GOING_ON
            states.setdefault(name, []).append((ended, len(canonical_json(response.get("output"))), record.record_id))
    most = {name: max(held) for name, held in states.items()}
    return {
        record_id: most[name][2]
        for name, held in states.items()
        for ended, _, record_id in held
        if not ended and record_id != most[name][2]
    }


def _context(value: dict[str, Any]) -> str | None:
    """What a harness sends with every request of a conversation; None where it keeps nothing at the vendor's (`store` false),
    so that every prompt is whole."""
    request, response = _parts(value)
    both = {**request, **(response if isinstance(response, dict) else {})}
    if both.get("store") is False:
        return None
    said = [both.get(name) for name in ("instructions", "prompt_cache_key", "safety_identifier", "user")]
    return f"context:{hashlib.sha256(canonical_json(said)).hexdigest()}"


def _parts(value: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    if is_response(value):  # some store the input beside it
        return {"input": value.get("input")}, value
    return request_and_response(value)


def _call(value: dict[str, Any]) -> Call:
    request, response = _parts(value)
    call = call_of(request, response)
    call.conversation = _conversation(request) or _conversation(response) or conversation_of(value, request, response)
    return with_row(call, value)


def _conversation(value: Any) -> str | None:
    held = value.get("conversation") if isinstance(value, dict) else None
    return text(held.get("id")) if isinstance(held, dict) else text(held)


def _previous(value: dict[str, Any]) -> str | None:
    request, response = _parts(value)
    answered = response if isinstance(response, dict) else {}
    return text(request.get("previous_response_id")) or text(answered.get("previous_response_id"))


def _num_instructions(call: Call) -> int:
    return 1 if call.messages and call.messages[0]["role"] in ("system", "developer") else 0


def _is_event(event: dict[str, Any]) -> bool:
    return str(event.get("type")).startswith("response.") and is_response(event.get("response"))


def _last_of(events: Sequence[Any]) -> dict[str, Any]:
    """The response that a stream's last event holds; of one that was cut, the items that had ended."""
    begun: dict[str, Any] = {}
    items: list[Any] = []
    for event in events:
        if not isinstance(event, dict):
            continue
        if isinstance(event.get("response"), dict):
            begun = event["response"]
            if event.get("type") in _LAST:
                return begun
        elif event.get("type") == "response.output_item.done":
            items.append(event.get("item"))
    if not begun:
        raise BadPieceError("wrong_shape", "a stream without a response")
    return {**begun, "output": items}


def _streams(path: Path) -> Iterator[Piece]:
    """The streams of a file, each ended by its last event."""
    held = []
    for event in events_in(path):
        value = event.value
        if not event.whole:
            yield Unfinished(line=held[0].line if held else event.line, byte_start=held[0].begin if held else event.begin)
            return
        if isinstance(value, dict) and (value.get("type") == "error" or str(value.get("type")).startswith("response.")):
            held.append(event)
            if value["type"] in _LAST:
                yield _stream(held)
                held = []
        elif not event.done:
            yield bad(event.raw, event.line, event.begin, BadPieceError("wrong_shape", "no event of a response"))
    if held:
        yield _stream(held)


def _stream(held: list[Any]) -> Piece:
    try:
        response = _last_of([event.value for event in held])
        return made(_facts(response), response, line=held[0].line, begin=held[0].begin, end=held[-1].end)
    except BadPieceError as problem:
        return bad(held[0].raw, held[0].line, held[0].begin, problem)
