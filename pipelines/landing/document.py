"""Files that are one JSON object: one record, or one for each item of a list inside it.

Such a file is written anew as a whole, so it is always read whole; one that ends in the middle of its object is still being
written and waits until it is at rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError, Facts, decode, normalised
from pipelines.landing.format import Piece, Unfinished
from pipelines.landing.head import BOM
from pipelines.landing.opening import read_log
from pipelines.landing.pieces import FactsOf, bad, made

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},:]', re.DOTALL)
_SPACE = b" \t\r\n"


def split_document(path: Path, start: int, facts: FactsOf) -> Iterator[Piece]:
    """The file as one record."""
    raw, begin, line = _body(path)
    if not raw or start >= begin + len(raw):
        return
    try:
        value, content = decode(raw)
        yield made(facts(value), value, content, line=line, begin=begin, end=begin + len(raw))
    except BadPieceError as problem:
        yield _refused(raw, line, begin, problem)


def split_items(
    path: Path,
    start: int,
    key: str,
    facts: Callable[[Any, dict[str, Any]], Facts],
    *,
    decoded: Callable[[bytes], tuple[Any, bytes]] = decode,
    missing_is_empty: bool = False,
) -> Iterator[Piece]:
    """The items of the list under one of the object's own keys, each with its place; `facts` gets an item and the object
    without that list. A file without items has no pieces, with `missing_is_empty` also one without the list.

    `decoded` reads the object, for tools that write what is no JSON."""
    raw, begin, line = _body(path)
    if not raw or start >= begin + len(raw):
        return
    try:
        value, _ = decoded(raw)
    except BadPieceError as problem:
        yield _refused(raw, line, begin, problem)
        return
    if not isinstance(value, dict):
        yield bad(raw, line, begin, BadPieceError("wrong_shape", "no object"))
        return
    if missing_is_empty and value.get(key) is None:
        return
    around = {name: kept for name, kept in value.items() if name != key}
    items = value.get(key)
    if not isinstance(items, list):
        yield bad(raw, line, begin, BadPieceError("wrong_shape", f"{key} is no list"))
        return
    counted = 0
    for item, (first, last) in zip(items, _places(raw, key), strict=True):
        line += raw.count(b"\n", counted, first)
        counted = first
        if begin + last <= start:
            continue
        try:
            read = facts(item, around)
            content = normalised(raw[first:last]) if read.value is None else None  # of what is stored in its place
            yield made(read, item, content, line=line, begin=begin + first, end=begin + last)
        except BadPieceError as problem:
            yield bad(raw[first:last], line, begin + first, problem)


def _body(path: Path) -> tuple[bytes, int, int]:
    """The object's bytes, where they begin, and on which line."""
    content = read_log(path)
    begin = len(BOM) if content.startswith(BOM) else 0
    stripped = content[begin:].lstrip(_SPACE)
    begin = len(content) - len(stripped)
    return stripped.rstrip(_SPACE + b"\0"), begin, 1 + content.count(b"\n", 0, begin)


def _refused(raw: bytes, line: int, begin: int, problem: BadPieceError) -> Piece:
    if problem.reason == "bad_json" and is_cut(raw):
        return Unfinished(line=line, byte_start=begin, at_rest=bad(raw, line, begin, problem))
    return bad(raw, line, begin, problem)


def is_cut(raw: bytes) -> bool:
    """It ends before its last bracket closes."""
    depth = 0
    for found in _TOKEN.finditer(raw):
        token = found.group()
        if token == b'"':
            return True
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
    return depth > 0


def _places(raw: bytes, key: str) -> Iterator[tuple[int, int]]:
    """Where the items of the list under `key` begin and end."""
    depth, inside, begin, name, before = 0, False, 0, b"", b""
    places: list[tuple[int, int]] = []
    for found in _TOKEN.finditer(raw):
        token = found.group()
        if inside and ((token == b"," and depth == 2) or (token == b"]" and depth == 2)):
            first, last = begin, found.start()
            while first < last and raw[first] in _SPACE:
                first += 1
            while last > first and raw[last - 1] in _SPACE:
                last -= 1
            if first < last:
                places.append((first, last))
            begin = found.end()
            if token == b"]":
                inside = False
        if token in (b"{", b"["):
            if depth == 1 and token == b"[" and before == b":" and orjson.loads(name) == key:
                inside, begin, places = (
                    True,
                    found.end(),
                    [],
                )  # of a key that stands twice the last list counts, as for the parser
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and len(token) > 1 and before in (b"{", b","):
            name = token
        before = token
    yield from places
