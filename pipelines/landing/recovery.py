"""The records on a line that is no single record: several whole ones, torn ones, runs of NUL bytes.

Writers that share a file, are killed inside a line, or lose a block in a power cut leave such lines. Whole records are read
wherever one may begin: at the line's start, behind a whole record, behind NUL bytes, where the line's own first key
stands again (a record that was begun anew), and anywhere if it reaches to the line's end. What lies between is one bad
piece for each stretch. An object inside a torn record is never taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipelines.landing.decoding import BadPieceError, decode
from pipelines.landing.format import BadRecord, SourceRecord
from pipelines.landing.pieces import FactsOf, bad, record

NUM_TRIES = 64
"""At how many places of a line a whole record is looked for before the rest of it is given up."""

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.DOTALL)
_FIRST_KEY = re.compile(rb'\{\s*"(?:[^"\\\0]|\\.)*"')
_OBJECT = re.compile(rb'\{\s*"')
_BETWEEN = b" \t\r,"
_NUL = b"\0"


def recovered(body: bytes, line: int, begin: int, facts: FactsOf, problem: BadPieceError) -> Iterator[SourceRecord | BadRecord]:
    """The pieces of a line that could not be read as one record because of `problem`, in order."""
    if problem.reason == "wrong_shape":
        yield bad(body, line, begin, problem)
        return
    torn = 0
    for first, last, found in _whole(body, line, begin, facts):
        yield from _torn(body, torn, first, line, begin, problem)
        yield found
        torn = last
    yield from _torn(body, torn, len(body), line, begin, problem)


def _whole(body: bytes, line: int, begin: int, facts: FactsOf) -> Iterator[tuple[int, int, SourceRecord | BadRecord]]:
    """Start, end and piece of every whole value on the line, none overlapping."""
    key = _FIRST_KEY.search(body)
    again = re.compile(re.escape(key.group())) if key else _OBJECT
    position = 0
    while (here := _skipped(body, position)) < len(body):
        found = _value(body, here, line, begin, facts, strict=False)
        for _ in range(NUM_TRIES):
            if found is not None:
                break
            candidate = _candidate(body, here, again)
            if candidate is None:
                break
            here = candidate
            found = _value(body, here, line, begin, facts, strict=True)
        if found is None:
            yield from _tail(body, position, line, begin, facts)
            return
        yield here, *found
        position = found[0]


def _candidate(body: bytes, torn: int, again: re.Pattern[bytes]) -> int | None:
    """Where behind the start of a torn record the next one may begin."""
    behind = [again.search(body, torn + 1)]
    if (nul := body.find(_NUL, torn)) >= 0:
        behind.append(_OBJECT.search(body, _skipped(body, nul)))
    return min((found.start() for found in behind if found), default=None)


def _tail(body: bytes, position: int, line: int, begin: int, facts: FactsOf) -> Iterator[tuple[int, int, SourceRecord]]:
    """The record that ends the line, where one begins anywhere behind a position."""
    for _, found in zip(range(NUM_TRIES), _OBJECT.finditer(body, position + 1), strict=False):
        try:
            yield found.start(), len(body), record(body[found.start() :].rstrip(_BETWEEN), line, begin + found.start(), facts)
            return
        except BadPieceError:
            continue


def _value(
    body: bytes, start: int, line: int, begin: int, facts: FactsOf, *, strict: bool
) -> tuple[int, SourceRecord | BadRecord] | None:
    """End and piece of the whole value that begins here; `strict`: only where it is a record."""
    end = _end(body, start)
    if end is None:
        return None
    raw = body[start:end]
    try:
        return end, record(raw, line, begin + start, facts)
    except BadPieceError as problem:
        if strict or problem.reason != "wrong_shape":
            return None
        return end, bad(raw, line, begin + start, problem)


def _end(body: bytes, start: int) -> int | None:
    """Where the object that begins here ends; None where none begins or it does not end."""
    if body[start : start + 1] != b"{":
        return None
    depth = 0
    for found in _TOKEN.finditer(body, start):
        token = found.group()
        if token == b'"':
            return None
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return found.end()
    return None


def _skipped(body: bytes, position: int) -> int:
    """Behind white space, commas and NUL bytes."""
    return len(body) - len(body[position:].lstrip(_BETWEEN + _NUL))


def _torn(body: bytes, first: int, last: int, line: int, begin: int, problem: BadPieceError) -> Iterator[BadRecord]:
    """The stretch between whole records, where it holds more than white space."""
    raw = body[first:last].strip(_BETWEEN)
    if not raw:
        return
    start = first + body[first:last].index(raw)
    if not raw.strip(_NUL):
        problem = BadPieceError("bad_json", f"{len(raw)} NUL bytes: a block that was never written")
    elif (first, last) != (0, len(body)):
        try:
            decode(raw)
        except BadPieceError as of_its_own:
            problem = of_its_own
    yield bad(raw, line, begin + start, problem)
