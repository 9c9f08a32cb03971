"""Files that are one JSON array of records, cut at the commas between its items, with each item's bytes and line.

The array is cut by its brackets and strings alone, so that one item that is no JSON (a NaN, a raw control character)
costs that item and not the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pipelines.landing.format import Piece, Unfinished
from pipelines.landing.opening import read_log
from pipelines.landing.pieces import FactsOf, piece

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_SPACE = b" \t\r\n"


def split_array(path: Path, facts: FactsOf) -> Iterator[Piece]:
    """The items of the file's array; `facts` reads one value or raises BadPieceError.

    An item that the file ends in the middle of is Unfinished. What stands behind the array is a BadRecord.
    """
    content = read_log(path)
    line, counted = 1, 0
    for begin, end in _items(content):
        line += content.count(b"\n", counted, begin)
        counted = begin
        if end is None:
            yield Unfinished(line=line, byte_start=begin)
            return
        yield piece(content[begin:end], line, begin, facts)


def _items(content: bytes) -> Iterator[tuple[int, int | None]]:
    """Start and end of each item without the white space around it; end is None where the file ends inside it."""
    depth, begin, closed = 0, 0, False
    for found in _TOKEN.finditer(content):
        token = found.group()
        if closed:
            break
        if token == b'"':  # a string without its end: the scan is blind from here on
            break
        if token in (b"[", b"{"):
            depth += 1
            if depth == 1:
                begin = found.end()
        elif token in (b"]", b"}"):
            depth -= 1
            if depth == 0:
                yield from _stripped(content, begin, found.start())
                begin, closed = found.end(), True
        elif token == b"," and depth == 1:
            yield from _stripped(content, begin, found.start())
            begin = found.end()
    rest = content[begin:].strip(_SPACE)
    if closed:
        yield from _stripped(content, begin, len(content))
    elif rest or begin == 0:
        start = begin + len(content[begin:]) - len(content[begin:].lstrip(_SPACE))
        yield start, None


def _stripped(content: bytes, begin: int, end: int) -> Iterator[tuple[int, int]]:
    while begin < end and content[begin] in _SPACE:
        begin += 1
    while end > begin and content[end - 1] in _SPACE:
        end -= 1
    if begin < end:
        yield begin, end
