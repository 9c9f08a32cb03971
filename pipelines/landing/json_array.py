"""Files that are one JSON array of records, cut at the commas between its items, with each item's bytes and line.

The array is cut by its brackets and strings alone, so that one item that is no JSON (a NaN, a raw control character)
costs that item and not the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError, Facts, decode
from pipelines.landing.format import BadRecord, Piece, SourceRecord, Unfinished

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)
_SPACE = b" \t\r\n"


def first_keys(head: bytes) -> set[str]:
    """The keys of the first item of an array of objects, as far as `head` shows them; empty for anything else."""
    keys: set[str] = set()
    depth, before = 0, b""
    for found in _TOKEN.finditer(head):
        token = found.group()
        if depth == 0 and (token != b"[" or head[: found.start()].removeprefix(b"\xef\xbb\xbf").strip(_SPACE)):
            return set()
        if depth == 1 and token != b"{":
            return keys  # the first item has ended, or the array is of something else
        if token in (b"[", b"{"):
            depth += 1
        elif token in (b"]", b"}"):
            depth -= 1
        elif depth == 2 and before in (b"{", b",") and len(token) > 1:
            try:
                keys.add(orjson.loads(token))
            except orjson.JSONDecodeError:
                return set()
        before = token
    return keys


def split_array(path: Path, facts: Callable[[Any], Facts]) -> Iterator[Piece]:
    """The items of the file's array; `facts` reads one value or raises BadPieceError.

    An item that the file ends in the middle of is Unfinished. What stands behind the array is a BadRecord.
    """
    content = path.read_bytes()
    line, counted = 1, 0
    for begin, end in _items(content):
        line += content.count(b"\n", counted, begin)
        counted = begin
        if end is None:
            yield Unfinished(line=line, byte_start=begin)
            return
        yield _piece(content[begin:end], line, begin, facts)


def _piece(raw: bytes, line: int, begin: int, facts: Callable[[Any], Facts]) -> SourceRecord | BadRecord:
    try:
        value, normalised = decode(raw)
        read = facts(value)
    except BadPieceError as problem:
        return BadRecord(
            line=line, byte_start=begin, byte_end=begin + len(raw), reason=problem.reason, detail=problem.detail, raw=raw
        )
    return SourceRecord(
        line=line,
        byte_start=begin,
        byte_end=begin + len(raw),
        value=value,
        content=normalised,
        vendor_id=read.vendor_id,
        attempt_ref=read.attempt_ref,
        time=read.time,
        skip_reason=read.skip_reason,
    )


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
