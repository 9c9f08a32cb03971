"""Format `anthropic_messages`: requests and responses of Anthropic's Messages API, also as recorded SSE text.

Read are `{request, response}` and its like, messages alone (also batch results), request bodies alone, and SSE streams.
Traps: the system prompt is a string or blocks and stands beside the messages; tool results are blocks of user messages and
become tool turns; `input_tokens` leaves out what came from or went into the cache; a stream brings a tool's input as
pieces of JSON; what the vendor's own tools said stands inside the assistant's message and was not sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.calls import (
    Answer,
    Call,
    bundle_of,
    conversation_of,
    has_messages,
    longest_states,
    own_facts,
    request_and_response,
    spelled,
    with_row,
)
from pipelines.landing.content_blocks import messages_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, Unfinished
from pipelines.landing.head import Head
from pipelines.landing.message_events import assembled
from pipelines.landing.pieces import bad, made
from pipelines.landing.shapes import careful, count, text
from pipelines.landing.sse import Event, behind, events_in, events_of, first_events
from pipelines.landing.wrappings import split_wrapped

_ONLY_HERE = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"})
_OTHERS = ("recorder", "call_type", "latency_sec", "sessionId", "uuid", "trajectory", "reward")
_STREAMED = "num_events"


class AnthropicMessages:
    """The format; see LogFormat."""

    name = "anthropic_messages"
    parser_version = 2
    what = "Anthropic Messages API, one request with its response per record, or recorded SSE"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """A line, the document or the array's first item is a request, a message, or both; or a stream begins."""
        if _is_row(head.item) or _is_row(head.object) or any(_is_row(row) for row in head.rows):
            return True
        return any(_begins_stream(event) for event in first_events(head))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per call or stream."""
        head = Head(path)
        if not head.items and any(_begins_stream(event) for event in first_events(head)):
            return behind(_streams(path), start, line)
        return split_wrapped(head, start, line, _is_row, _facts)

    def spell(self, value: Any) -> Spelled:
        """System prompt and messages, then the answer."""
        return spelled(_call(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts that these calls are."""
        kept, shorter = longest_states(
            records, lambda value: (str(value.get("id")), value[_STREAMED]) if _STREAMED in value else None
        )
        bundle = bundle_of([(record, _call(record.value)) for record in kept])
        holder = {record_id: attempt.ref for attempt in bundle.attempts for record_id in attempt.record_ids}
        left = {record_id: (holder.get(stands), "superseded") for record_id, stands in shorter.items()}
        return Bundle(attempts=bundle.attempts, left={**bundle.left, **left})


def speaks_anthropic(request: dict[str, Any]) -> bool:
    """Whether a request with messages is one to this API: what only it has, or a Claude model's own name with `max_tokens`."""
    if "system" in request or "anthropic_version" in request:
        return True
    tools, messages = request.get("tools"), request.get("messages")
    if isinstance(tools, list) and tools and isinstance(tools[0], dict) and "input_schema" in tools[0]:
        return True
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list) and any(isinstance(block, dict) and block.get("type") in _ONLY_HERE for block in content):
            return True
    return str(request.get("model")).startswith("claude") and isinstance(request.get("max_tokens"), int)


def is_message(value: Any) -> bool:
    """Whether an object is a response of the API."""
    return (
        isinstance(value, dict)
        and value.get("type") == "message"
        and value.get("role") == "assistant"
        and isinstance(value.get("content"), list)
        and not {"usage", "stop_reason"}.isdisjoint(value)  # items of the Responses API look the same but for these
    )


def call_of(request: dict[str, Any], response: Any) -> Call:
    """A request and its response (a message, SSE text, a list of events, an error; None where not logged) as a Call."""
    messages = _system(request.get("system"))
    asked = request.get("messages") or []
    if not isinstance(asked, list):
        raise BadPieceError("wrong_shape", "messages is no list")
    for message in asked:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadPieceError("wrong_shape", "a message without a role")
        messages += _messages(message["role"], message.get("content"))
    tools = request.get("tools")
    call = Call(messages=messages, tools=tools if isinstance(tools, list) and tools else None, model=text(request.get("model")))
    streamed = isinstance(response, list) or (isinstance(response, str) and "data:" in response)
    if isinstance(response, str) and streamed:
        response = assembled(events_of(response))
    elif isinstance(response, list):
        response = assembled(response)
    if not isinstance(response, dict):
        return call
    if response.get("type") == "error" or (response.get("error") and not response.get("content")):
        call.fault = "model_error"
        return call
    if not isinstance(response.get("content"), list):
        raise BadPieceError("wrong_shape", "a response without content")
    *before, message = _messages("assistant", response["content"])
    call.answers = [Answer(message=message, before=before, finish_reason=text(response.get("stop_reason")))]
    if (streamed or _STREAMED in response) and call.answers[0].finish_reason is None:
        call.fault = "aborted"  # the stream was cut off: nobody knows what the answer would have been
    call.call_id, call.model = text(response.get("id")), text(response.get("model")) or call.model
    call.num_prompt_tokens, call.num_reply_tokens = _usage(response.get("usage"))
    return call


def _system(system: Any) -> list[dict[str, Any]]:
    if isinstance(system, str) and system:
        return [{"role": "system", "content": system}]
    if isinstance(system, list) and system:
        return _messages("system", system)
    return []


def _messages(role: str, content: Any) -> list[dict[str, Any]]:
    """At least one message: an answer may say nothing, and counts."""
    if isinstance(content, list):
        if not all(isinstance(block, dict | str) for block in content):
            raise BadPieceError("wrong_shape", "a content block is no object")
    elif content is not None and not isinstance(content, str):
        raise BadPieceError("wrong_shape", f"content of a message is a {type(content).__name__}")
    return messages_of(role, content) or [{"role": role, "content": None}]


def _usage(usage: Any) -> tuple[int | None, int | None]:
    """Tokens of prompt and reply; those that came from or went into the cache are part of the prompt."""
    if not isinstance(usage, dict) or (fresh := count(usage.get("input_tokens"))) is None:
        return None, count(usage.get("output_tokens")) if isinstance(usage, dict) else None
    cached = [count(usage.get(name)) or 0 for name in ("cache_creation_input_tokens", "cache_read_input_tokens")]
    return fresh + sum(cached), count(usage.get("output_tokens"))


def _is_row(value: Any) -> bool:
    if not isinstance(value, dict) or any(key in value for key in _OTHERS):
        return False
    request, response = _parts(value)
    if has_messages(request) and speaks_anthropic(request):
        return response is None or is_message(response) or isinstance(response, str | list) or _is_error(response)
    return is_message(response)


def _parts(value: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    if is_message(value):
        return {}, value
    result = value.get("result")
    if isinstance(result, dict) and "custom_id" in value:
        return {}, result.get("message") or {"type": "error"}
    return request_and_response(value)


@careful
def _facts(value: Any) -> Facts:
    return own_facts(value, _call)


def _call(value: dict[str, Any]) -> Call:
    request, response = _parts(value)
    call = call_of(request, response)
    call.conversation = conversation_of(value, request) or _user_conversation(request)
    return with_row(call, value)


def _user_conversation(request: dict[str, Any]) -> str | None:
    """Claude Code names its session inside the user's id: `user_…_account_…_session_<id>`."""
    metadata = request.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return user.rpartition("_session_")[2] if isinstance(user, str) and "_session_" in user else None


def _is_error(response: Any) -> bool:
    return isinstance(response, dict) and response.get("type") == "error"


def _begins_stream(event: dict[str, Any]) -> bool:
    return event.get("type") == "message_start" and is_message(event.get("message"))


def _streams(path: Path) -> Iterator[Piece]:
    """The streams of a file, one behind the other; what stands before the first is bad."""
    held: list[Event] = []
    for event in events_in(path):
        value = event.value
        if not event.whole:
            if held:
                yield _stream(held)
            yield Unfinished(line=event.line, byte_start=event.begin)
            return
        if isinstance(value, dict) and _begins_stream(value) and held:
            yield _stream(held)
            held = []
        if isinstance(value, dict) and (held or _begins_stream(value)) and isinstance(value.get("type"), str):
            held.append(event)
        elif not event.done:
            if held:
                yield _stream(held)
                held = []
            kind = "bad_json" if value is None else "wrong_shape"
            yield bad(event.raw, event.line, event.begin, BadPieceError(kind, "no event of a message"))
    if held:
        yield _stream(held)


def _stream(held: list[Event]) -> Piece:
    first, last = held[0], held[-1]
    try:
        message = {**assembled([event.value for event in held]), _STREAMED: len(held)}
        read = _facts(message)
    except BadPieceError as problem:
        return bad(orjson.dumps([event.value for event in held]), first.line, first.begin, problem)
    # known by its content alone: the same id comes again when the stream was read before it ended
    read = Facts(bundle_ref=f"stream:{message.get('id')}", time=read.time)
    return made(read, message, line=first.line, begin=first.begin, end=last.end)
