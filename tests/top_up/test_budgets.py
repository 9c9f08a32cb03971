"""A budget holds whatever runs beside whatever, and lets everything run that fits."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given
from hypothesis import strategies as st

from pipelines.budgets import GIVE_UP_AFTER, Budget


def spent(budget: Budget, costs: list[int], concurrency: int, seed: int, *, fails: bool = False) -> list[int]:
    """Costs of the rollouts that ran, in the order of their end."""
    draw, left, ran = random.Random(seed), iter(costs), list[int]()

    async def work() -> None:
        for cost in left:
            if not await budget.admits():
                return
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(0)
            ran.append(cost)
            await budget.take(cost, failed=fails)

    async def all_of_them() -> None:
        async with asyncio.timeout(20), asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(work())

    asyncio.run(all_of_them())
    return ran


@given(
    cost=st.integers(1, 50),
    number=st.integers(1, 60),
    tokens=st.integers(1, 800),
    concurrency=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_equal_costs_never_exceed_it_and_use_it_up(cost: int, number: int, tokens: int, concurrency: int, seed: int) -> None:
    budget = Budget(num_rollouts=1000, num_tokens=tokens, seconds=None)
    ran = spent(budget, [cost] * number, concurrency, seed)
    affordable = tokens // cost
    # before one has ended nobody knows the cost: the first wave, of four at most, may go beyond
    assert len(ran) <= max(affordable, min(4, number, concurrency))
    assert len(ran) >= min(number, affordable)
    assert (budget.stopped_by is None) == (len(ran) == number)


@given(
    costs=st.lists(st.integers(0, 100), min_size=1, max_size=60),
    rollouts=st.integers(0, 40),
    tokens=st.none() | st.integers(1, 2000),
    concurrency=st.integers(1, 40),
    ended=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_it_always_ends_within_its_rollouts(
    costs: list[int], rollouts: int, tokens: int | None, concurrency: int, ended: int, seed: int
) -> None:
    budget = Budget(num_rollouts=rollouts, num_tokens=tokens, seconds=None, num_ended=ended, tokens=10 * ended)
    ran = spent(budget, costs, concurrency, seed)
    assert len(ran) <= max(rollouts - ended, 0)
    if len(ran) < len(costs):
        assert budget.stopped_by in {"rollouts", "tokens"}
    if tokens is None:
        assert len(ran) == min(len(costs), max(rollouts - ended, 0))


@given(concurrency=st.integers(1, 40), seed=st.integers(0, 99))
def test_what_always_fails_is_given_up(concurrency: int, seed: int) -> None:
    budget = Budget(num_rollouts=100, num_tokens=None, seconds=None)
    assert len(spent(budget, [5] * 50, concurrency, seed, fails=True)) == GIVE_UP_AFTER
    assert budget.stopped_by == "failed"


def test_time_that_is_over_starts_nothing() -> None:
    budget = Budget(num_rollouts=100, num_tokens=None, seconds=0.0)
    assert budget.is_used() and budget.stopped_by == "minutes"
    assert spent(Budget(num_rollouts=100, num_tokens=None, seconds=0.0), [1] * 5, 3, 0) == []
