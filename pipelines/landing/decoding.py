"""Bytes of one record -> its JSON value and its normalised bytes, or the reason why it is none."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from typing import Any

import orjson


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
    """The value and its normalised bytes (no white space, escapes resolved, key order kept); BadPieceError where it is no JSON.

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
    try:
        return value, orjson.dumps(value)
    except orjson.JSONEncodeError as problem:  # orjson reads deeper nesting than it writes
        raise BadPieceError("wrong_shape", f"cannot be written again: {problem}") from None


def utc(text: str) -> datetime.datetime:
    """An ISO 8601 time in UTC; one without a zone is UTC. BadPieceError where it is none."""
    try:
        time = datetime.datetime.fromisoformat(text)
        return time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise BadPieceError("wrong_shape", f"{text[:40]!r} is no ISO 8601 time") from None


def _rescue(raw: bytes) -> Any:
    if b"\\ud" not in raw.lower():
        return None
    try:
        return _without_surrogates(json.loads(raw.decode("utf-8"), parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


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
