"""Records that stand deep inside a JSON value, each with its own bytes and line.

Exports of traces wrap their spans: one value (a file, or one line of it) holds many. A format says at which paths of a
value its records are; `*` stands for every item of a list. The value is decoded once, and cut by its brackets and strings
to find each record's bytes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from pipelines.landing.decoding import BadPieceError, Facts, decode
from pipelines.landing.format import Piece, Unfinished
from pipelines.landing.head import BOM
from pipelines.landing.opening import open_log, read_log
from pipelines.landing.pieces import bad, made

Step = str | int
PathsOf = Callable[[Any], Sequence[tuple[str, ...]]]
"""At which paths of a value records are; () is the value itself. Raises BadPieceError where it is no value of the format."""
FactsAt = Callable[[Any, Any, tuple[Step, ...]], Facts]
"""Reads one record, given the value around it and its place in that."""

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
_NUM_RECOVERY_TRIES = 64
_NUM_FIRST_LINES = 3
_BLOCK_BYTES = 1 << 16
_SPACE = b" \t\r\n\0"


def split_nested(path: Path, start: int, line: int, paths_of: PathsOf, facts: FactsAt) -> Iterator[Piece]:
    """The records of a file that is one JSON value, or one value a line, from byte `start` on.

    One value over several lines is written anew as a whole, so it is read whole. A value that the file ends in the middle
    of is Unfinished.
    """
    if _is_one_value(path):
        content = read_log(path)
        raw, begin = _stripped(content, 0)
        if raw:
            for piece in _pieces(raw, 1 + content.count(b"\n", 0, begin), begin, True, paths_of, facts):
                if isinstance(piece, Unfinished):
                    cut = BadPieceError("bad_json", "the file ends inside this value")
                    piece = dataclasses.replace(
                        piece, at_rest=bad(content[piece.byte_start :], piece.line, piece.byte_start, cut)
                    )
                if piece.byte_start >= start:
                    yield piece
        return
    with open_log(path) as stream:
        position, number = _line_begin(stream, start), line - 1
        stream.seek(position)
        for text in iter(stream.readline, b""):
            number += 1
            raw, begin = _stripped(text, position)
            position += len(text)
            if raw:
                for piece in _pieces(raw, number, begin, not text.endswith(b"\n"), paths_of, facts):
                    if piece.byte_start >= start:
                        yield piece


def places(raw: bytes, paths: Sequence[tuple[str, ...]]) -> Iterator[tuple[tuple[Step, ...], int, int]]:
    """The place, begin and end of every value at one of `paths` inside the JSON value `raw`, in order."""
    wanted: dict[int, list[tuple[str, ...]]] = {}
    for path in paths:
        wanted.setdefault(len(path), []).append(path)
    here: list[Step] = []  # where the value that comes next stands
    opened: list[int | None] = []  # begin of the value that each open bracket starts, where that is wanted

    def is_wanted() -> bool:
        return any(
            all(step == there or (step == "*" and isinstance(there, int)) for step, there in zip(path, here, strict=True))
            for path in wanted.get(len(here), ())
        )

    key: bytes | None = None
    in_object: list[bool] = []
    for found in _TOKEN.finditer(raw):
        token = found.group()
        if token == b":":
            here[-1] = orjson.loads(key) if key is not None else ""
        elif token == b",":
            if in_object[-1]:
                key = None
            else:
                here[-1] = int(here[-1]) + 1
        elif token in (b"{", b"["):
            opened.append(found.start() if is_wanted() else None)
            in_object.append(token == b"{")
            here.append("" if token == b"{" else 0)
            key = None
        elif token in (b"}", b"]"):
            here.pop()
            in_object.pop()
            begin = opened.pop()
            if begin is not None:
                yield tuple(here), begin, found.end()
        elif in_object and in_object[-1] and key is None:
            key = token
        elif is_wanted():
            yield tuple(here), found.start(), found.end()


def at(value: Any, place: Sequence[Step]) -> Any:
    """What stands at a place of a value."""
    for step in place:
        value = value[step]
    return value


def _pieces(raw: bytes, line: int, begin: int, is_last: bool, paths_of: PathsOf, facts: FactsAt) -> Iterator[Piece]:
    try:
        value, _ = decode(raw)
    except BadPieceError as problem:
        tail = _tail(raw) if b"\n" not in raw else None
        if tail is not None:  # a torn value, and behind it on the same line a whole one
            head = raw[:tail].rstrip(_SPACE)
            yield from _pieces(head, line, begin, False, paths_of, facts)
            yield from _pieces(raw[tail:], line, begin + tail, is_last, paths_of, facts)
        elif is_last and problem.reason == "bad_json" and _is_cut(raw):
            yield Unfinished(line=line, byte_start=begin)
        else:
            yield bad(raw, line, begin, problem)
        return
    try:
        paths = paths_of(value)
    except BadPieceError as problem:
        yield bad(raw, line, begin, problem)
        return
    counted = 0
    for place, first, last in places(raw, paths):
        line += raw.count(b"\n", counted, first)
        counted = first
        try:
            item = at(value, place)
            read = facts(item, value, place)
            yield made(read, item, orjson.dumps(item), line=line, begin=begin + first, end=begin + last)
        except BadPieceError as problem:
            yield bad(raw[first:last], line, begin + first, problem)
        except (LookupError, TypeError):  # of a key that stands twice only the last value was decoded
            yield bad(raw[first:last], line, begin + first, BadPieceError("wrong_shape", "a key around it stands twice"))


def _line_begin(stream: IO[bytes], start: int) -> int:
    """Where the line begins that byte `start` is on: a record's end is mostly in the middle of one."""
    end = start
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        stream.seek(begin)
        found = stream.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _is_one_value(path: Path) -> bool:
    """Whether the file is one value over several lines: its first line is no value, and none of the next is one."""
    with open_log(path) as stream:
        seen = 0
        for text in iter(stream.readline, b""):
            body, _ = _stripped(text, 0)
            if not body:
                continue
            seen += 1
            if len(body) < 3 and seen == 1:
                return True
            try:
                orjson.loads(body)
                return False
            except orjson.JSONDecodeError:
                if seen == 1 and not body.startswith((b'{"', b'["')):
                    return True
            if seen == _NUM_FIRST_LINES:
                break
    return True


def _stripped(text: bytes, position: int) -> tuple[bytes, int]:
    begin = len(BOM) if position == 0 and text.startswith(BOM) else 0
    stripped = text[begin:].lstrip(_SPACE)
    return stripped.rstrip(_SPACE), position + len(text) - len(stripped)


def _tail(raw: bytes) -> int | None:
    """Where the last whole value on a line begins whose beginning is torn."""
    cut = 0
    for _ in range(_NUM_RECOVERY_TRIES):
        cut = raw.find(raw[:2], cut + 1)
        if cut < 0:
            return None
        try:
            orjson.loads(raw[cut:])
        except orjson.JSONDecodeError:
            continue
        return cut
    return None


def _is_cut(raw: bytes) -> bool:
    """It ends before its last bracket closes."""
    depth = 0
    for found in _TOKEN.finditer(raw):
        token = found.group()
        if token.startswith(b'"') and (len(token) == 1 or not token.endswith(b'"')):
            return True
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
    return depth > 0
