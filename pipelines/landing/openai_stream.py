"""Format `openai_stream`: streamed chat completions, as JSONL of `chat.completion.chunk` objects or as the SSE text itself.

The chunks of one id are one record, put together when the file is read: a secret that the stream cut in two must stand
in one piece when it is redacted. Streams of several calls may be mixed in one file. Chunks do not say what was asked. A
stream that was read while it was still written is superseded by its longer state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.landing.calls import Call, bundle_of, spelled
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import BadRecord, Bundle, Piece, Spelled, StoredRecord, Unfinished
from pipelines.landing.head import Head
from pipelines.landing.openai_chat import call_of
from pipelines.landing.pieces import bad, made
from pipelines.landing.sse import Event, events_in, first_events

CHUNK = "chat.completion.chunk"
_JOINED = ("content", "reasoning_content", "reasoning", "refusal")


class OpenAIStream:
    """The format; see LogFormat."""

    name = "openai_stream"
    parser_version = 1
    what = "streamed OpenAI chat completions, as JSONL of chunks or SSE text"
    gives = frozenset({"model", "logprobs", "times"})

    def detect(self, head: Head) -> bool:
        """An object among the first lines is a chunk."""
        return any(is_chunk(event) for event in first_events(head))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per stream, where it ends; a file is always read whole, since its streams may be mixed."""
        return (piece for piece in _pieces(path) if piece.byte_start >= start)

    def spell(self, value: Any) -> Spelled:
        """The choices; a stream holds no prompt."""
        return spelled(_call(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of one stream: of its states that which holds most."""
        whole = max(records, key=lambda record: (record.value["num_chunks"], record.record_id))
        bundle = bundle_of([(whole, _call(whole.value))])
        ref = bundle.attempts[0].ref
        left: dict[str, tuple[str | None, str]] = {
            record.record_id: (ref, "superseded") for record in records if record is not whole
        }
        return Bundle(attempts=bundle.attempts, left=left)


def is_chunk(value: Any) -> bool:
    """Whether an object is a chunk of a streamed chat completion."""
    return isinstance(value, dict) and value.get("object") == CHUNK and isinstance(value.get("choices"), list)


def assembled(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The chat completion that some chunks of one stream are; BadPieceError where one is no chunk."""
    whole: dict[str, Any] = {"object": "chat.completion", "num_chunks": len(chunks), "choices": []}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for name, value in chunk.items():
            if name not in ("object", "choices") and value is not None:
                whole[name] = value
        for part in chunk.get("choices") or ():
            if not isinstance(part, dict) or not isinstance(part.get("delta") or {}, dict):
                raise BadPieceError("wrong_shape", "a choice of a chunk is no object")
            index = part["index"] if isinstance(part.get("index"), int) else 0
            choice = choices.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            _add(choice, part)
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole


def _add(choice: dict[str, Any], part: dict[str, Any]) -> None:
    message, delta = choice["message"], part.get("delta") or {}
    for name, value in delta.items():
        if name in _JOINED and isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        elif name == "tool_calls":
            for position, call in enumerate(value or ()):
                _add_call(message.setdefault("tool_calls", []), call, position)
        elif name == "function_call" and isinstance(value, dict):
            held = message.setdefault("function_call", {"name": None, "arguments": ""})
            held["name"] = held["name"] or value.get("name")
            held["arguments"] += value.get("arguments") or ""
        elif value is not None and name not in message:
            message[name] = value
    if part.get("finish_reason") is not None:
        choice["finish_reason"] = part["finish_reason"]
    logged = part.get("logprobs")
    if isinstance(logged, dict) and isinstance(logged.get("content"), list):
        choice.setdefault("logprobs", {"content": []})["content"] += logged["content"]
    if isinstance(part.get("token_ids"), list):
        choice["token_ids"] = [*choice.get("token_ids", []), *part["token_ids"]]


def _add_call(calls: list[dict[str, Any]], part: Any, position: int) -> None:
    if not isinstance(part, dict) or not isinstance(part.get("function") or {}, dict):
        raise BadPieceError("wrong_shape", "a tool call of a chunk is no object")
    index = part["index"] if isinstance(part.get("index"), int) else position
    call = next((call for call in calls if call["index"] == index), None)
    if call is None:
        call = {"index": index, "id": None, "type": "function", "function": {"name": None, "arguments": ""}}
        calls.append(call)
    function = part.get("function") or {}
    call["id"] = call["id"] or part.get("id")
    call["function"]["name"] = call["function"]["name"] or function.get("name")
    if isinstance(function.get("arguments"), str):
        call["function"]["arguments"] += function["arguments"]


@dataclass
class _Stream:
    first: Event
    last: Event
    chunks: list[dict[str, Any]] = field(default_factory=list)


def _pieces(path: Path) -> Iterator[Piece]:
    """Streams in the order of their last chunk; bad lines and torn ends between them."""
    streams: dict[Any, _Stream] = {}
    others: list[BadRecord | Unfinished] = []
    for event in events_in(path):
        if is_chunk(event.value):
            name = event.value.get("id") or event.value.get("created")
            stream = streams.setdefault(name, _Stream(event, event))
            stream.last = event
            stream.chunks.append(event.value)
        elif not event.whole:
            others.append(Unfinished(line=event.line, byte_start=event.begin))
        elif not event.done:
            kind = "bad_json" if event.value is None else "wrong_shape"
            others.append(bad(event.raw, event.line, event.begin, BadPieceError(kind, "no chunk of a chat completion")))
    ends: list[tuple[int, _Stream | BadRecord | Unfinished]] = [(stream.last.end, stream) for stream in streams.values()]
    ends += [(other.byte_end if isinstance(other, BadRecord) else other.byte_start + 1, other) for other in others]
    free = 0
    for end, found in sorted(ends, key=lambda pair: pair[0]):
        if isinstance(found, _Stream):
            # what stands between the chunks of a stream has its own place: places must not overlap
            begin = max(found.first.begin, free)
            yield _piece(found, begin)
        else:
            yield found
        free = end


def _piece(stream: _Stream, begin: int) -> Piece:
    try:
        whole = assembled(stream.chunks)
        call = _call(whole)
        if not call.answers:
            raise BadPieceError("wrong_shape", "a stream without any choice")
        spelled(call)
    except BadPieceError as problem:
        return bad(stream.first.raw, stream.first.line, begin, problem)
    read = Facts(bundle_ref=None if call.call_id is None else f"stream:{call.call_id}", time=call.ended_at)
    return made(read, whole, line=stream.first.line, begin=begin, end=stream.last.end)


def _call(value: dict[str, Any]) -> Call:
    return call_of({}, value)
