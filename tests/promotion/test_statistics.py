"""The gate's statistics against scipy's bootstrap and Student's t, and what must hold whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pipelines.statistics import paired_bootstrap, rate_interval, seed_of

differences_of_tasks = st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=2, max_size=60)


def _bound(differences: list[float], confidence: float = 0.95, seed: int = 3) -> float:
    return paired_bootstrap(differences, confidence=confidence, draws=2000, seed=seed).lower_bound


def test_agrees_with_scipys_percentile_bootstrap_and_with_students_t() -> None:
    differences = np.random.default_rng(7).choice([-0.5, 0.0, 0.5, 1.0], size=120, p=[0.2, 0.3, 0.3, 0.2])
    found = paired_bootstrap(differences.tolist(), confidence=0.95, draws=20_000, seed=1)
    scipys = stats.bootstrap(
        (differences,),
        np.mean,
        n_resamples=20_000,
        confidence_level=0.95,
        alternative="greater",
        method="percentile",
        rng=np.random.default_rng(2),
    )
    students = differences.mean() - stats.t.ppf(0.95, 119) * stats.sem(differences)
    assert found.difference == pytest.approx(differences.mean(), abs=1e-12)
    assert found.lower_bound == pytest.approx(scipys.confidence_interval.low, abs=0.005)
    assert found.lower_bound == pytest.approx(students, abs=0.005)


@settings(max_examples=40, deadline=None)
@given(differences_of_tasks)
def test_the_bound_lies_below_the_mean_and_falls_with_confidence(differences: list[float]) -> None:
    ninety, ninety_nine = _bound(differences, 0.9), _bound(differences, 0.99)
    assert min(differences) <= ninety_nine <= ninety <= max(differences)
    assert ninety_nine <= np.mean(differences) + 1e-12


@settings(max_examples=40, deadline=None)
@given(differences_of_tasks, st.integers(0, 2**64 - 1))
def test_one_seed_one_bound(differences: list[float], seed: int) -> None:
    assert _bound(differences, seed=seed) == _bound(differences, seed=seed)


@settings(max_examples=40, deadline=None)
@given(differences_of_tasks)
def test_a_shift_of_every_task_shifts_the_bound(differences: list[float]) -> None:
    assert _bound([value + 0.25 for value in differences]) == pytest.approx(_bound(differences) + 0.25, abs=1e-9)


def test_equal_policies_have_a_bound_of_exactly_zero() -> None:
    assert _bound([0.0] * 100) == 0.0


def test_thirds_that_cancel_are_no_improvement() -> None:
    # in floats the mean of these four is 2.8e-17, and the gate asks for a bound above 0
    found = paired_bootstrap([1 / 3, 2 / 3, -1 / 3, -2 / 3], confidence=0.95, draws=1000, seed=0)
    assert found.difference == 0.0


def test_a_true_null_is_rejected_about_as_often_as_asked() -> None:
    """40 tasks of their own difficulty, 4 answers each from both sides: counting answers as independent rejects 15%."""
    source = np.random.default_rng(11)
    rejected = 0
    for trial in range(400):
        difficulty = source.beta(0.5, 0.5, size=40)
        challenger, champion = source.binomial(4, difficulty) / 4, source.binomial(4, difficulty) / 4
        rejected += paired_bootstrap((challenger - champion).tolist(), confidence=0.95, draws=500, seed=trial).lower_bound > 0
    # 5% nominal, the percentile bootstrap at 40 tasks 5 to 6%; 400 trials have a standard error of 1.1%
    assert rejected / 400 < 0.09


def test_no_tasks_have_no_bound() -> None:
    with pytest.raises(ValueError, match="no tasks"):
        paired_bootstrap([], confidence=0.95, draws=1000, seed=0)


def test_the_interval_of_a_rate_agrees_with_students_t_over_tasks() -> None:
    rates = np.random.default_rng(5).choice([0.0, 0.5, 1.0], size=150, p=[0.2, 0.3, 0.5])
    found = rate_interval(rates.tolist(), draws=20_000, seed=4)
    half = stats.t.ppf(0.975, 149) * stats.sem(rates)
    assert found.rate == pytest.approx(rates.mean(), abs=1e-12)
    assert (found.low, found.high) == pytest.approx((rates.mean() - half, rates.mean() + half), abs=0.006)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_tasks_that_all_agree_still_prove_only_so_much(rate: float) -> None:
    found = rate_interval([rate] * 20)
    wilsons = stats.binomtest(int(20 * rate), 20).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((wilsons.low, wilsons.high), abs=1e-9)
    assert found.low <= rate <= found.high


def test_a_seed_is_a_function_of_its_ids_and_their_order() -> None:
    assert seed_of("ckp_1", "base") == seed_of("ckp_1", "base")
    assert seed_of("ckp_1", "base") != seed_of("base", "ckp_1")
