"""Server-sent events as text: `data:` lines, events ended by an empty line. Also JSONL of the same events.

Recorded streams lack their empty lines as often as not, so every `data:` line that is JSON by itself is an event.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.format import Piece, Unfinished
from pipelines.landing.head import BOM, Head
from pipelines.landing.opening import open_log

DONE = b"[DONE]"
_FIELDS = (b"event:", b"id:", b"retry:", b":")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of a recorded stream."""

    value: Any
    """Its JSON; None where it is none."""
    done: bool
    """The stream's own end mark."""
    line: int
    begin: int
    end: int
    raw: bytes
    whole: bool
    """It ends with a newline, or is JSON and cannot go on."""


def events_in(path: Path) -> Iterator[Event]:
    """The events of a file; names and comments of events are left out, and what is neither has no value."""
    with open_log(path) as stream:
        position = 0
        for number, text in enumerate(iter(stream.readline, b""), start=1):
            begin, position = position, position + len(text)
            body = text.removeprefix(BOM) if begin == 0 else text
            body = body.strip()
            if not body or body.startswith(_FIELDS):
                continue
            event = event_of(body)
            yield Event(
                value=event,
                done=_payload(body) == DONE,
                line=number,
                begin=begin,
                end=begin + len(text.rstrip(b"\r\n")),
                raw=body,
                whole=event is not None or text.endswith(b"\n"),
            )


def behind(pieces: Iterable[Piece], start: int, line: int) -> Iterator[Piece]:
    """Those of a file's pieces that end behind byte `start`, among them a stream that was read before it ended and has grown.

    It is read whole again, but its place begins at `start` (on `line`): what was acknowledged before has its own.
    """
    for piece in pieces:
        if piece.byte_start >= start:
            yield piece
        elif isinstance(piece, Unfinished) or piece.byte_end > start:
            yield dataclasses.replace(piece, byte_start=start, line=line)


def events_of(text: str) -> list[Any]:
    """The JSON of the events of a response body."""
    found = (event_of(line.strip()) for line in text.encode().split(b"\n"))
    return [event for event in found if event is not None]


def event_of(body: bytes) -> Any:
    """The JSON of one line, with or without `data:`; None where there is none."""
    try:
        return orjson.loads(_payload(body))
    except orjson.JSONDecodeError:
        return None


def first_events(head: Head) -> list[dict[str, Any]]:
    """The objects among a file's first events, for `detect`."""
    lines: Iterable[bytes] = head.raw.removeprefix(BOM).split(b"\n", 40)[:40]
    found = (event_of(line.strip()) for line in lines if line.strip())
    return [event for event in found if isinstance(event, dict)]


def _payload(body: bytes) -> bytes:
    return body.removeprefix(b"data:").strip()
