"""Files with one JSON value a line. Lines end at the byte \\n and nowhere else: a U+2028 inside a string is text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipelines.landing.decoding import BadPieceError
from pipelines.landing.format import BadRecord, Piece, SourceRecord, Unfinished
from pipelines.landing.head import BOM
from pipelines.landing.opening import BLOCK, CUT, open_log
from pipelines.landing.pieces import FactsOf, record
from pipelines.landing.recovery import recovered

LONGEST_LINE = 256 << 20
"""Bytes of a line that is read; a longer one is one bad piece, so that a file without line ends cannot fill the memory."""

KEPT_OF_LONG = 1 << 17
"""Bytes that are kept of a line that is too long."""

ReadOfBytes = Callable[[bytes, int, int], SourceRecord | None]
"""Reads a record straight off a line's bytes (line number, offset); None: the value has to be decoded and looked at."""


@dataclass(frozen=True)
class LineReader:
    """Reads the lines of a file, each by itself."""

    facts: FactsOf
    """Reads one value, or raises BadPieceError; a function of that value alone, since other processes read other lines."""
    quick: ReadOfBytes | None = None

    def pieces(self, stream: IO[bytes], start: int, line: int) -> Iterator[Piece]:
        """The pieces that stand in a stream, whose first byte is byte `start` of the file, on line `line`.

        A last line without its newline is taken where it is a record (a JSON object that has ended cannot go on), and is
        Unfinished where not. A line that is no record is searched for records (recovery.py).
        """
        facts, quick = self.facts, self.quick
        position, number = start, line - 1
        while True:
            number += 1
            try:
                text = stream.readline(LONGEST_LINE)
                if len(text) == LONGEST_LINE and not text.endswith(b"\n"):
                    long = _skipped(stream, text, number, position)
                    yield long
                    if isinstance(long, Unfinished):
                        return
                    position = long.byte_end + 1
                    continue
            except CUT:  # a packed file whose end is missing: as far as it goes it was read
                yield Unfinished(line=number, byte_start=position)
                return
            if not text:
                return
            begin, position = position, position + len(text)
            if begin == 0 and text.startswith(BOM):
                begin, text = len(BOM), text[len(BOM) :]
            body = text.rstrip(b"\r\n")
            if quick is not None and (found := quick(body, number, begin)) is not None:
                yield found
                continue
            if not body.strip():
                continue
            try:
                yield record(body, number, begin, facts)
            except BadPieceError as problem:
                if not text.endswith(b"\n") and problem.reason != "wrong_shape":
                    yield Unfinished(line=number, byte_start=begin)
                    return
                yield from recovered(body, number, begin, facts, problem)


class Lines(Iterator[Piece]):
    """The pieces of a JSONL file, which may be cut at any line and read in parts (line_blocks.py)."""

    def __init__(self, path: Path, start: int, line: int, reader: LineReader) -> None:
        self.reader = reader
        self._pieces = _opened(path, start, line, reader)

    def __next__(self) -> Piece:
        return next(self._pieces)


def split_lines(path: Path, start: int, line: int, facts: FactsOf, quick: ReadOfBytes | None = None) -> Lines:
    """The pieces of a JSONL file; see LineReader. Where `facts` and `quick` can be pickled, several processes read the file."""
    return Lines(path, start, line, LineReader(facts, quick))


def _opened(path: Path, start: int, line: int, reader: LineReader) -> Iterator[Piece]:
    with open_log(path) as stream:
        stream.seek(start)
        yield from reader.pieces(stream, start, line)


def _skipped(stream: IO[bytes], text: bytes, line: int, begin: int) -> BadRecord | Unfinished:
    """A line that is too long, read to its end in small parts."""
    whole, num_bytes, ended = hashlib.sha256(text), len(text), False
    kept = text[:KEPT_OF_LONG]
    del text
    while part := stream.readline(BLOCK):
        ended = part.endswith(b"\n")
        part = part.rstrip(b"\n") if ended else part
        whole.update(part)
        num_bytes += len(part)
        if ended:
            break
    if not ended:
        return Unfinished(line=line, byte_start=begin)
    detail = f"a line of {num_bytes} bytes; up to {LONGEST_LINE} are read"
    return BadRecord(
        line=line,
        byte_start=begin,
        byte_end=begin + num_bytes,
        reason="too_long",
        detail=detail,
        raw=kept,
        digest=whole.digest(),
    )
