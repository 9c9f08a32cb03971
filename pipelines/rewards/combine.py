"""Reads: verdicts and judge scores of one group. Writes: nothing, pure functions. Next: advantages (trainer/contract.py).

One scalar per attempt, in integers of 1e-6, so that no rounding lets the judge overtake a test. Under `tests_first` the
judge may take at most a tenth of the smallest gap between verdicts: it orders what the tests call equal and cannot
reach the next verdict (I5). A judge without a frozen calibration has no weight at all; its scores are kept and reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from trainer.contract import REWARD_UNIT

Rule = Literal["tests_first", "tests_only", "judge_only"]

MAX_JUDGE_WEIGHT = 100_000
"""Of the smallest gap, in 1e-6, whatever the configuration says: at a tenth a pass the judge dislikes stays a clear pass."""


@dataclass(frozen=True)
class Attempt:
    """One member of a group with its scores, all in 1e-6."""

    trajectory_id: str
    verifier_score: int | None
    """None where there is no verdict."""
    ruler_score: int | None = None
    """None where the group was not judged, or the judge failed."""
    verifier_failed: bool = False
    """A verifier broke on it, as against could not tell."""
    fault: bool = False
    """The harness failed: no failed attempt, and no sibling to compare with."""


@dataclass(frozen=True)
class Reward:
    """The scalar of one attempt, or why there is none."""

    trajectory_id: str
    reward: int | None
    """In 1e-6."""
    reason: str | None
    """One of reasons.REWARD_REASONS exactly where `reward` is None."""
    rule: Rule
    """The rule that made it: `judge_only` also where, under `tests_first`, there was nothing but a calibrated judge."""


def combine(
    attempts: Sequence[Attempt],
    rule: Rule,
    *,
    judge_weight: int,
    calibrated: bool = False,
    judge_failed: bool = False,
    min_judged: int = 2,
) -> list[Reward]:
    """Rewards of one group, in the order given.

    `judge_weight` in 1e-6, cut at MAX_JUDGE_WEIGHT; `calibrated`: this judge and rubric have a frozen calibration, else
    the judge's scores stay out of every reward; `judge_failed`: the judge was asked about this group and gave nothing usable; a group with
    fewer sound members than `min_judged` is ordered by no judge alone.
    """
    sound = [attempt for attempt in attempts if not attempt.fault]
    verdicts = [attempt.verifier_score for attempt in sound if attempt.verifier_score is not None]
    if rule == "judge_only" or (rule == "tests_first" and not verdicts and not any(a.verifier_failed for a in sound)):
        few = len(sound) < min_judged
        return [_judged(attempt, rule, calibrated=calibrated, judge_failed=judge_failed, few=few) for attempt in attempts]
    step = 0
    if rule == "tests_first" and calibrated and _all_judged(sound):
        step = min(judge_weight, MAX_JUDGE_WEIGHT) * smallest_gap(verdicts)
    return [_tested(attempt, rule, step, others=bool(verdicts)) for attempt in attempts]


def smallest_gap(scores: Sequence[int]) -> int:
    """The smallest difference between distinct scores; 0 where all are equal, so that the judge then weighs nothing."""
    return min((above - below for below, above in pairwise(sorted(set(scores)))), default=0)


def _all_judged(attempts: Sequence[Attempt]) -> bool:
    # a missing judge score is not 0: where one lacks it, nobody gets any
    return all(attempt.ruler_score is not None for attempt in attempts if attempt.verifier_score is not None)


def _tested(attempt: Attempt, rule: Rule, step: int, *, others: bool) -> Reward:
    if attempt.fault:
        return Reward(attempt.trajectory_id, None, "harness_fault", rule)
    if attempt.verifier_score is None:
        missing = "no_verdict" if others else "no_score"
        return Reward(attempt.trajectory_id, None, "verifier_failed" if attempt.verifier_failed else missing, rule)
    bonus = step * (attempt.ruler_score or 0) // REWARD_UNIT**2
    return Reward(attempt.trajectory_id, attempt.verifier_score + bonus, None, rule)


def _judged(attempt: Attempt, rule: Rule, *, calibrated: bool, judge_failed: bool, few: bool) -> Reward:
    if attempt.fault:
        return Reward(attempt.trajectory_id, None, "harness_fault", rule)
    if few:
        return Reward(attempt.trajectory_id, None, "too_few", rule)
    if calibrated and attempt.ruler_score is not None:
        return Reward(attempt.trajectory_id, attempt.ruler_score, None, "judge_only")
    return Reward(attempt.trajectory_id, None, "judge_failed" if judge_failed else "no_score", rule)
