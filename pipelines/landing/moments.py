"""A time, however a log writes it: ISO 8601, or a number of seconds, milliseconds, microseconds or nanoseconds.

At landing `checked_moment` refuses a record whose time is none; where a record was let through already, or its time is not
what matters, `moment` gives None.
"""

from __future__ import annotations

import datetime
from typing import Any

from pipelines.landing.decoding import BadPieceError

_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""From which size on a number counts which part of a second: 1e11 seconds are the year 5138."""
_LEN_DATE = 8
"""Digits of a date without hyphens; other digits are a number."""


def moment(value: Any) -> datetime.datetime | None:
    """The time in UTC; None where there is none."""
    try:
        return checked_moment(value)
    except BadPieceError:
        return None


def checked_moment(value: Any) -> datetime.datetime | None:
    """The time in UTC; None where there is none (0 is nobody's time). BadPieceError where it is no time."""
    if value is None or value == "":
        return None
    if isinstance(value, dict) and "seconds" in value:
        value = [value["seconds"], value.get("nanos") or 0]
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int | float) for part in value):
        value = value[0] + value[1] / 1e9
    if isinstance(value, str):
        if not value.isdecimal() or len(value) == _LEN_DATE:
            return utc(value)
        value = int(value) if len(value) < 30 else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadPieceError("wrong_shape", f"{str(value)[:40]!r} is no time")
    if value <= 0:
        return None
    divisor = next((divisor for least, divisor in _UNITS if value >= least), 1.0)
    try:
        return datetime.datetime.fromtimestamp(value / divisor, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise BadPieceError("wrong_shape", f"{str(value)[:40]} is no time") from None


def utc(text: str) -> datetime.datetime:
    """An ISO 8601 time in UTC; one without a zone is UTC. BadPieceError where it is none."""
    try:
        time = datetime.datetime.fromisoformat(text)
        return time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise BadPieceError("wrong_shape", f"{text[:40]!r} is no ISO 8601 time") from None


_LOGGED = (
    "timestamp",
    "time",
    "ts",
    "at",
    "created_at",
    "createdAt",
    "ended_at",
    "endTime",
    "end_time",
    "started_at",
    "startTime",
)


def logged_at(value: Any) -> datetime.datetime | None:
    """When a record was written by what it says itself, in whatever words; None where it says nothing."""
    for held in (value, value.get("row")) if isinstance(value, dict) else ():
        if isinstance(held, dict):
            for key in _LOGGED:
                if (found := moment(held.get(key))) is not None:
                    return found
    return None
