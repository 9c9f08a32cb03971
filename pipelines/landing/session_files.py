"""Files whose lines belong together although only the first of them names what to.

Such a line means nothing without its file's first line, so what that says becomes part of the line's value: the line keeps
it when the file is renamed, cut or read on from its middle.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.ids import canonical_json
from pipelines.landing.format import BadRecord, Piece, SourceRecord, StoredRecord
from pipelines.landing.moments import moment
from pipelines.landing.opening import open_log

NUM_LINES = 20
NUM_TRIES = 64
"""At how many places of a line that is no JSON an object is looked for: a torn line may stand before it."""


def header(path: Path, is_header: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """The first object among the file's first lines that is one. Raises OSError where the file cannot be read."""
    with open_log(path) as stream:
        try:
            lines = [stream.readline() for _ in range(NUM_LINES)]
        except EOFError:
            return None
    for line in lines:
        for value in _objects(line):
            if is_header(value):
                return value
    return None


def unnamed(path: Path) -> str:
    """What stands for a session whose file does not name it: its first line, so that a copy of the file is the same one."""
    with open_log(path) as stream:
        return f"file-{hashlib.sha256(stream.readline().strip()).hexdigest()[:32]}"


def with_session(pieces: Iterable[Piece], session: dict[str, Any]) -> Iterator[Piece]:
    """Each record with `session` beside its own value under `row`, and `session["id"]` as its bundle.

    A line without a time also keeps its number: where nothing else tells equal lines apart or in which order they were
    written, the place in the file is part of what the line says.
    """
    for piece in pieces:
        if not isinstance(piece, SourceRecord):
            yield piece
            continue
        value: dict[str, Any] = {"session": session, "row": piece.value}
        if piece.time is None:
            value["line"] = piece.line
        try:
            content = canonical_json(value)
        except TypeError as problem:  # one level deeper than it was
            yield BadRecord(
                line=piece.line,
                byte_start=piece.byte_start,
                byte_end=piece.byte_end,
                reason="wrong_shape",
                detail=f"cannot be written again: {problem}",
                raw=piece.content,
            )
            continue
        yield dataclasses.replace(piece, value=value, content=content, text=None, bundle_ref=session["id"])


def logged_at(record: StoredRecord) -> datetime.datetime | None:
    """When the row of such a record was logged."""
    logged = record.value["row"].get("timestamp")
    return moment(logged)


def in_order(records: Sequence[StoredRecord]) -> list[StoredRecord]:
    """By time and place; by place alone where a row has no time."""
    times = {record.record_id: logged_at(record) for record in records}
    timed = None not in times.values()

    def order(record: StoredRecord) -> tuple[object, ...]:
        return times[record.record_id] if timed else None, record.byte_start, record.record_id

    return sorted(records, key=order) if timed else sorted(records, key=lambda record: order(record)[1:])


def _objects(line: bytes) -> Iterator[dict[str, Any]]:
    cut = 0
    for _ in range(NUM_TRIES):
        try:
            value = orjson.loads(line[cut:])
        except orjson.JSONDecodeError:
            cut = line.find(b'{"', cut + 1)
            if cut < 0:
                return
            continue
        if isinstance(value, dict):
            yield value
        return
