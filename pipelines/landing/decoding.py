"""Bytes of one record -> its JSON value and its normalised bytes, or the reason why it is none.

Normalised bytes have no white space between tokens and no escape that need not be; everything else stays as it was logged,
so that numbers keep all their digits (a 70-bit integer is a float in the value, as for most readers, and whole in the text)
and a key that stands twice stands there twice (in the value its last one counts).
"""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import orjson

from pipelines.landing.screening import has_escape

DEEPEST = 240
"""Levels of nesting that a record may have: what writes JSON here stops at 254, and a record is wrapped before it is written."""

NEEDLESS = b"u/"
"""What stands behind the backslash of escapes that need not be, or not always."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_LONG_NUMBER = re.compile(rb"[0-9]{17}")


class BadPieceError(ValueError):
    """These bytes are no record; `reason` is one of reasons.QUARANTINE_REASONS. Caught by the splitters, never shown."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a format reads off one decoded value; the fields are those of SourceRecord."""

    vendor_id: str | None = None
    bundle_ref: str | None = None
    time: datetime.datetime | None = None
    skip_reason: str | None = None
    value: Any = None
    """What is stored in its place where the value alone cannot be understood (an item together with what its file says
    about all items); such a record's content is this. None: the value as it is."""


def decode(raw: bytes) -> tuple[Any, bytes]:
    """The value and its normalised bytes; BadPieceError where it is no JSON.

    Half a surrogate pair, left where a tool cut a text in the middle of an emoji, is no reason to lose the record: it
    becomes U+FFFD in the value, and the normalised bytes are the raw ones then.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as problem:
        rescued = _rescue(raw)
        if rescued is not None:
            return rescued, raw
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError as broken:
            raise BadPieceError("bad_utf8", f"byte {broken.start} is not UTF-8") from None
        raise BadPieceError("bad_json", str(problem)) from None
    if may_be_deep(raw):
        refuse_deep(value)
    return value, normalised(raw)


def normalised(raw: bytes) -> bytes:
    """The normalised bytes of bytes that are JSON."""
    compact = formatted(raw)
    return _STRING.sub(_resolved, compact) if has_escape(compact, NEEDLESS) else compact


def formatted(raw: bytes) -> bytes:
    """Bytes that are JSON without white space between tokens; normalised where no escape is one of NEEDLESS."""
    try:
        return msgspec.json.format(raw, indent=-1)
    except RecursionError:
        raise BadPieceError("wrong_shape", f"nested deeper than {DEEPEST} levels") from None


def may_be_deep(raw: bytes) -> bool:
    """Whether there are brackets enough to be nested deeper than DEEPEST."""
    brackets = np.frombuffer(raw, np.uint8) | (ord("{") ^ ord("["))  # makes one of the two
    return int(np.count_nonzero(brackets == ord("{"))) > DEEPEST


def refuse_deep(value: Any) -> None:
    """BadPieceError where a value is nested deeper than DEEPEST: orjson reads deeper than it, or most others, can write."""
    for _ in range(254 - DEEPEST):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise BadPieceError("wrong_shape", f"nested deeper than {DEEPEST} levels") from None


def exact(content: bytes) -> Any:
    """The value of normalised bytes with every integer as it is, however long; for `written`."""
    if _LONG_NUMBER.search(content):
        try:
            return _without_surrogates(json.loads(content))
        except (ValueError, RecursionError):
            pass
    return decode(content)[0]


def written(value: Any) -> str:
    """A value as JSON text, integers of any length included."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _resolved(found: re.Match[bytes]) -> bytes:
    string = found.group()
    return orjson.dumps(orjson.loads(string)) if b"\\" in string else string


def _rescue(raw: bytes) -> Any:
    if b"\\ud" not in raw.lower():
        return None
    try:
        whole = _without_surrogates(json.loads(raw.decode("utf-8"), parse_constant=_refuse))
        value = orjson.loads(written(whole))  # its long integers as those of any other record
    except (ValueError, RecursionError):
        return None
    refuse_deep(value)
    return value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if not value.isascii() else value
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
