"""Times in whatever writing."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from pipelines.landing.decoding import BadPieceError
from pipelines.landing.moments import checked_moment, moment

AT = datetime.datetime(2026, 11, 20, 10, tzinfo=datetime.UTC)
SECONDS = int(AT.timestamp())


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-20T10:00:00Z",
        "2026-11-20T11:00:00+01:00",
        "2026-11-20 10:00:00",
        SECONDS,
        SECONDS * 1000,
        SECONDS * 10**6,
        SECONDS * 10**9,
        float(SECONDS),
        str(SECONDS * 10**9),
        [SECONDS, 0],
        {"seconds": SECONDS},
    ],
)
def test_all_writings_of_one_moment(value: Any) -> None:
    assert checked_moment(value) == moment(value) == AT


@pytest.mark.parametrize("value", [None, "", 0, "0", -5])
def test_no_time_is_none(value: Any) -> None:
    assert checked_moment(value) is None


@pytest.mark.parametrize("value", ["yesterday", "2026-13-45", True, {}, [1], [None, 2], 10**30, "9" * 40, "²"])
def test_what_is_no_time_is_refused_at_landing_and_none_behind_it(value: Any) -> None:
    assert moment(value) is None
    with pytest.raises(BadPieceError):
        checked_moment(value)


def test_a_date_without_hyphens_is_no_number() -> None:
    assert moment("20261120") == AT.replace(hour=0)
