"""A time, however a log writes it: ISO 8601, or a number of seconds, milliseconds, microseconds or nanoseconds."""

from __future__ import annotations

import datetime
from typing import Any

from pipelines.landing.decoding import BadPieceError, utc

_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""From which size on a number counts which part of a second: 1e11 seconds are the year 5138."""


def moment(value: Any) -> datetime.datetime | None:
    """The time in UTC; None where there is none. BadPieceError where it is no time."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return utc(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadPieceError("wrong_shape", f"{str(value)[:40]} is no time")
    divisor = next((divisor for least, divisor in _UNITS if abs(value) >= least), 1.0)
    try:
        return datetime.datetime.fromtimestamp(value / divisor, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise BadPieceError("wrong_shape", f"{value} is no time") from None
