"""Files with one JSON value a line. Lines end at the byte \\n and nowhere else: a U+2028 inside a string is text."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from pipelines.landing.decoding import BadPieceError
from pipelines.landing.format import BadRecord, Piece, SourceRecord, Unfinished
from pipelines.landing.head import BOM
from pipelines.landing.opening import open_log
from pipelines.landing.pieces import FactsOf, bad, record

NUM_RECOVERY_TRIES = 64
"""At how many places of a bad line a whole record is looked for."""


def split_lines(path: Path, start: int, line: int, facts: FactsOf) -> Iterator[Piece]:
    """The pieces of a JSONL file; `facts` reads one value or raises BadPieceError.

    A last line without its newline is taken where it is a record (a JSON object that has ended cannot go on), and is
    Unfinished where not. Where a writer was killed inside a line and the next one appended behind it, the whole record at
    the line's end is taken and the torn beginning becomes a BadRecord.
    """
    with open_log(path) as stream:
        stream.seek(start)
        position, number = start, line - 1
        while True:
            number += 1
            try:
                text = stream.readline()
            except (EOFError, zlib.error):  # a packed file whose end is missing: as far as it goes it was read
                yield Unfinished(line=number, byte_start=position)
                return
            if not text:
                return
            begin, position = position, position + len(text)
            if begin == 0 and text.startswith(BOM):
                begin, text = len(BOM), text[len(BOM) :]
            body = text.rstrip(b"\r\n")
            if not body.strip():
                continue
            try:
                yield record(body, number, begin, facts)
            except BadPieceError as problem:
                if not text.endswith(b"\n") and problem.reason != "wrong_shape":
                    yield Unfinished(line=number, byte_start=begin)
                    return
                yield from _recovered(body, number, begin, facts, problem)


def _recovered(body: bytes, line: int, begin: int, facts: FactsOf, problem: BadPieceError) -> Iterator[SourceRecord | BadRecord]:
    """The line as one bad record, or as what stands before its last whole record and that record."""
    tail = None
    if problem.reason != "wrong_shape":
        cut = 0
        for _ in range(NUM_RECOVERY_TRIES):
            cut = body.find(b'{"', cut + 1)
            if cut < 0:
                break
            try:
                tail = record(body[cut:], line, begin + cut, facts)
            except BadPieceError:
                continue
            body = body[:cut]
            break
    if tail is not None:
        try:  # two whole records on one line: both are records
            yield record(body, line, begin, facts)
            yield tail
            return
        except BadPieceError as torn:
            problem = torn
    yield bad(body, line, begin, problem)
    if tail is not None:
        yield tail
