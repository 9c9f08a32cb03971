"""Every enumerated word can be said to a person."""

from __future__ import annotations

import pytest

from pipelines import reasons, words
from pipelines.landing.quarantine import REASONS


@pytest.mark.parametrize(
    ("said", "enumerated"),
    [
        (words.SKIPPED, reasons.SKIP_REASONS),
        (words.QUARANTINED, REASONS),
        (words.LEFT_OUT, reasons.DUPLICATE_KINDS),
        (words.ELIGIBLE, reasons.ELIGIBLE_REASONS),
        (words.LANE, reasons.ELIGIBLE_REASONS + reasons.LANE_REASONS),
        (words.FAULT, reasons.FAULTS),
        (words.LINK, reasons.LINKS),
        (words.REWARD, reasons.REWARD_REASONS),
        (words.WANTED, reasons.WANTED_REASONS),
        (words.TOP_UP_STOP, reasons.TOP_UP_STOPS),
        (words.TOP_UP_SKIP, reasons.TOP_UP_SKIPS),
    ],
)
def test_each_word_has_a_meaning(said: dict[str, str], enumerated: tuple[str, ...]) -> None:
    assert set(said) == set(enumerated)
