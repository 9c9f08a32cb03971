"""Format `openai_stream`: streamed chat completions, as JSONL of `chat.completion.chunk` objects or as the SSE text itself.

The chunks of one id are one record, put together when the file is read: a secret that the stream cut in two must stand
in one piece when it is redacted. Streams of several calls may be mixed in one file. Chunks do not say what was asked. A
stream that was read while it was still written is superseded by its longer state; one whose chunks lie in two files, since
the log was rotated in its middle, is put together where the second half does not begin an answer; one that never says how it finished was
cut off, which is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipelines.landing.calls import Call, bundle_of, spelled
from pipelines.landing.chat_chunks import assembled, is_chunk, joined
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, Unfinished
from pipelines.landing.head import Head
from pipelines.landing.openai_chat import call_of
from pipelines.landing.pieces import bad, made
from pipelines.landing.sse import Event, behind, events_in, first_events


class OpenAIStream:
    """The format; see LogFormat."""

    name = "openai_stream"
    parser_version = 2
    what = "streamed OpenAI chat completions, as JSONL of chunks or SSE text"
    gives = frozenset({"model", "logprobs", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """An object among the first lines is a chunk."""
        return any(is_chunk(event) for event in first_events(head))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per stream, where it ends; a file is always read whole, since its streams may be mixed."""
        return behind(_pieces(path), start, line)

    def spell(self, value: Any) -> Spelled:
        """The choices; a stream holds no prompt."""
        return spelled(_call(value))

    def placed(self, value: Any) -> Facts:
        """Where a stored value belongs, which is not as it was logged (placed_anew.py)."""
        return _facts(_call(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of one stream: of its states that which holds most, with the rest of it where another file has that."""
        begun = [record for record in records if not record.value.get("from_middle")]
        whole, rest = max(begun or records, key=_size), None
        if begun and any(choice.get("finish_reason") is None for choice in whole.value["choices"]):
            rest = max((record for record in records if record.value.get("from_middle")), key=_size, default=None)
        if rest is None:
            made_of, call = whole, _call(whole.value)
        else:
            value = joined(whole.value, rest.value)
            made_of, call = replace(whole, value=value, spelled=_spelled_as_one(value, whole, rest)), _call(value)
        bundle = bundle_of([(made_of, call)])
        ref = bundle.attempts[0].ref
        held = [whole, *([] if rest is None else [rest])]
        attempts = [replace(attempt, record_ids=[record.record_id for record in held]) for attempt in bundle.attempts]
        left: dict[str, tuple[str | None, str]] = {
            record.record_id: (ref, "superseded") for record in records if record not in held
        }
        return Bundle(attempts=attempts, left=left)


def _size(record: StoredRecord) -> tuple[int, str]:
    return record.value["num_chunks"], record.record_id


def _spelled_as_one(value: dict[str, Any], *parts: StoredRecord) -> Spelled:
    """The turns of a stream that was cut in two. What they say is known by both halves: each has its identity from before redaction."""
    found = spelled(_call(value))
    for number, turn in enumerate(found.turns):
        halves = [part.spelled.turns[number] for part in parts if number < len(part.spelled.turns)]
        turn["id"] = "+".join(half["id"] for half in halves)
        turn["reasoning_id"] = "+".join(half["reasoning_id"] for half in halves if half["reasoning_id"]) or None
    return found


@dataclass
class _Stream:
    first: Event
    last: Event
    chunks: list[dict[str, Any]] = field(default_factory=list)


def _pieces(path: Path) -> Iterator[Piece]:
    """Streams in the order of their last chunk; bad lines and torn ends between them."""
    streams: dict[Any, _Stream] = {}
    others: list[Piece] = []
    for event in events_in(path):
        if is_chunk(event.value):
            name = str(event.value.get("id") or event.value.get("created"))
            stream = streams.setdefault(name, _Stream(event, event))
            stream.last = event
            stream.chunks.append(event.value)
        elif not event.whole:
            others.append(Unfinished(line=event.line, byte_start=event.begin))
        elif isinstance(event.value, dict) and event.value.get("choices") == []:
            skipped = Facts(skip_reason="meta")  # Azure's first event: what its filters found
            others.append(made(skipped, event.value, line=event.line, begin=event.begin, end=event.end))
        elif not event.done:
            kind = "bad_json" if event.value is None else "wrong_shape"
            others.append(bad(event.raw, event.line, event.begin, BadPieceError(kind, "no chunk of a chat completion")))
    ends: list[tuple[int, _Stream | Piece]] = [(stream.last.end, stream) for stream in streams.values()]
    ends += [(other.byte_start + 1 if isinstance(other, Unfinished) else other.byte_end, other) for other in others]
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
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        detail = f"{type(problem).__name__}: {problem}"[:200]
        return bad(stream.first.raw, stream.first.line, begin, BadPieceError("wrong_shape", detail))
    return made(_facts(call), whole, line=stream.first.line, begin=begin, end=stream.last.end)


def _facts(call: Call) -> Facts:
    return Facts(bundle_ref=None if call.call_id is None else f"stream:{call.call_id}", time=call.ended_at)


def _call(value: dict[str, Any]) -> Call:
    call = call_of({}, value)
    if any(answer.finish_reason is None for answer in call.answers):
        call.fault = "aborted"  # nobody knows what the answer would have been
    return call
