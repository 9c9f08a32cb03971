"""A stretch of bytes and what a format reads off it -> a record, or a bad record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.ids import canonical_json
from pipelines.landing.decoding import NEEDLESS, BadPieceError, Facts, decode, formatted, may_be_deep, normalised
from pipelines.landing.format import BadRecord, SourceRecord, Unfinished
from pipelines.landing.screening import has_escape

FactsOf = Callable[[Any], Facts]
"""Reads one decoded value, or raises BadPieceError where it is no record of the format."""


def piece(raw: bytes, line: int, begin: int, facts: FactsOf) -> SourceRecord | BadRecord:
    """The record that these bytes are."""
    try:
        return record(raw, line, begin, facts)
    except BadPieceError as problem:
        return bad(raw, line, begin, problem)


def record(raw: bytes, line: int, begin: int, facts: FactsOf) -> SourceRecord:
    """The record that these bytes are, or BadPieceError."""
    value, content = decode(raw)
    return made(facts(value), value, content, line=line, begin=begin, end=begin + len(raw))


def made(read: Facts, value: Any, content: bytes | None = None, *, line: int, begin: int, end: int) -> SourceRecord:
    """A record from a value that is decoded already; `content` None: the value's canonical JSON (no text of its own to keep)."""
    text = (
        None
        if content is None or read.value is not None or (has_escape(content, b"u") and b"\\ud" in content.lower())
        else content
    )
    if read.value is not None:
        value, content = read.value, None
    try:
        content = canonical_json(value) if content is None else content
    except TypeError:
        raise BadPieceError("wrong_shape", "nested too deep to be written again") from None
    return SourceRecord(
        line=line,
        byte_start=begin,
        byte_end=end,
        value=value,
        content=content,
        vendor_id=read.vendor_id,
        bundle_ref=read.bundle_ref,
        time=read.time,
        skip_reason=read.skip_reason,
        text=text,
    )


def bad(raw: bytes, line: int, begin: int, problem: BadPieceError) -> BadRecord:
    """These bytes as a bad record."""
    return BadRecord(
        line=line, byte_start=begin, byte_end=begin + len(raw), reason=problem.reason, detail=problem.detail, raw=raw
    )


def cut_file(path: Path, what: str) -> Unfinished:
    """A binary file whose end, which says what is in it, is missing."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
        size = stream.tell()
    rest = BadRecord(line=1, byte_start=0, byte_end=size, reason="wrong_shape", detail=what, raw=b"", digest=digest)
    return Unfinished(line=1, byte_start=0, at_rest=rest)


class QuickRecord(SourceRecord):
    """A record whose ids and time were read straight off its bytes: it is decoded only where somebody asks for its value."""

    def __getattr__(self, name: str) -> Any:
        if name != "value":
            raise AttributeError(name)
        object.__setattr__(self, "value", decode(self.content)[0])
        return self.value


def quick(raw: bytes, line: int, begin: int, facts: Callable[[bytes], Facts | None]) -> SourceRecord | None:
    """The record that these bytes are, where `facts` can tell what there is to tell without decoding all of them.

    None: it has to be decoded and looked at. `facts` must refuse (None) whatever the format's own facts would not take, and
    whatever is no JSON.
    """
    if may_be_deep(raw):
        return None
    try:
        read = facts(raw)
        if read is None or read.value is not None:
            return None
        if not raw.isascii():
            raw.decode()
        content = formatted(raw)
        if has_escape(content, NEEDLESS):
            content = normalised(content)
            if has_escape(content, b"u") and b"\\ud" in content.lower():
                return None
    except ValueError:
        return None
    made = object.__new__(QuickRecord)
    made.__dict__.update(
        line=line,
        byte_start=begin,
        byte_end=begin + len(raw),
        content=content,
        vendor_id=read.vendor_id,
        bundle_ref=read.bundle_ref,
        time=read.time,
        skip_reason=read.skip_reason,
        text=content,
    )
    return made
