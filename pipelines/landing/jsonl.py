"""Files with one JSON value a line. Lines end at the byte \\n and nowhere else: a U+2028 inside a string is text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError, Facts, decode
from pipelines.landing.format import BadRecord, Piece, SourceRecord, Unfinished

BOM = b"\xef\xbb\xbf"
NUM_RECOVERY_TRIES = 64
"""At how many places of a bad line a whole record is looked for."""


def first_values(head: bytes, num_lines: int = 20) -> Iterator[Any]:
    """The values of the first lines that are whole JSON: a torn first line must not hide what a file is."""
    for line in head.removeprefix(BOM).split(b"\n", num_lines)[:num_lines]:
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError:
            continue


def split_lines(path: Path, start: int, line: int, facts: Callable[[Any], Facts]) -> Iterator[Piece]:
    """The pieces of a JSONL file; `facts` reads one value or raises BadPieceError.

    A last line without its newline is taken where it is a record (a JSON object that has ended cannot go on), and is
    Unfinished where not. Where a writer was killed inside a line and the next one appended behind it, the whole record at
    the line's end is taken and the torn beginning becomes a BadRecord.
    """
    with path.open("rb") as stream:
        stream.seek(start)
        position = start
        for number, text in enumerate(stream, start=line):
            begin, position = position, position + len(text)
            if begin == 0 and text.startswith(BOM):
                begin, text = len(BOM), text[len(BOM) :]
            body = text.rstrip(b"\r\n")
            if not body.strip():
                continue
            try:
                yield _record(body, number, begin, facts)
            except BadPieceError as problem:
                if not text.endswith(b"\n") and problem.reason != "wrong_shape":
                    yield Unfinished(line=number, byte_start=begin)
                    return
                yield from _recovered(body, number, begin, facts, problem)


def _record(body: bytes, line: int, begin: int, facts: Callable[[Any], Facts]) -> SourceRecord:
    value, content = decode(body)
    read = facts(value)
    return SourceRecord(
        line=line,
        byte_start=begin,
        byte_end=begin + len(body),
        value=value,
        content=content,
        vendor_id=read.vendor_id,
        attempt_ref=read.attempt_ref,
        time=read.time,
        skip_reason=read.skip_reason,
    )


def _recovered(
    body: bytes, line: int, begin: int, facts: Callable[[Any], Facts], problem: BadPieceError
) -> Iterator[SourceRecord | BadRecord]:
    """The line as one bad record, or as what stands before its last whole record and that record."""
    tail = None
    if problem.reason != "wrong_shape":
        cut = 0
        for _ in range(NUM_RECOVERY_TRIES):
            cut = body.find(b'{"', cut + 1)
            if cut < 0:
                break
            try:
                tail = _record(body[cut:], line, begin + cut, facts)
            except BadPieceError:
                continue
            body = body[:cut]
            break
    if tail is not None:
        try:  # two whole records on one line: both are records
            yield _record(body, line, begin, facts)
            yield tail
            return
        except BadPieceError as torn:
            problem = torn
    yield BadRecord(
        line=line, byte_start=begin, byte_end=begin + len(body), reason=problem.reason, detail=problem.detail, raw=body
    )
    if tail is not None:
        yield tail
