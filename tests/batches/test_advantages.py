"""Advantages over columns are those over lists, bit for bit, in any order of rows and on any number of threads (I6)."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.advantages import advantages_of
from pipelines.doors.lake import Lake
from pipelines.doors.queries import Queries
from pipelines.errors import LakeError
from trainer.contract import advantages, standardised

REWARDED = pa.schema([("group_id", pa.string()), ("trajectory_id", pa.string()), ("reward", pa.int64())])
Groups = list[list[int]]

groups_of_rewards = st.lists(
    st.lists(st.integers(-2_000_000, 2_000_000), min_size=1, max_size=24)
    | st.lists(st.integers(-(10**8), 10**8), min_size=1, max_size=24)
    | st.lists(st.integers(0, 1500), min_size=1, max_size=4),
    max_size=12,
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(str(tmp_path_factory.mktemp("lake")))


def rewarded(groups: Groups, draws: random.Random) -> pa.Table:
    rows = [
        {"group_id": f"g{group:02}", "trajectory_id": f"t{place:05}", "reward": reward}
        for group, rewards in enumerate(groups)
        for place, reward in enumerate(rewards)
    ]
    draws.shuffle(rows)
    return pa.Table.from_pylist(rows, schema=REWARDED)


def of_lists(groups: Groups) -> list[tuple[str, str, str]]:
    return [
        (f"g{group:02}", f"t{place:05}", value.hex())
        for group, rewards in enumerate(groups)
        for place, value in enumerate(advantages(rewards) or [])
    ]


def of_columns(table: pa.Table) -> list[tuple[str, str, str]]:
    return [(row["group_id"], row["trajectory_id"], row["advantage"].hex()) for row in table.to_pylist()]


@settings(deadline=None, max_examples=40)
@given(groups_of_rewards, st.randoms(use_true_random=False), st.sampled_from([1, 2]))
def test_columns_give_what_lists_give_bit_for_bit(lake: Lake, groups: Groups, draws: random.Random, threads: int) -> None:
    found = advantages_of(Queries(lake, threads=threads), rewarded(groups, draws))
    assert of_columns(found) == of_lists(groups)


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(1, 2**63 - 1)), min_size=1, max_size=40))
def test_numbers_that_no_float_holds_round_alike(numbers: list[tuple[int, int]]) -> None:
    centred, scatter = (np.array(values, np.int64) for values in zip(*numbers, strict=True))
    found = standardised(centred, scatter, np.sqrt).tolist()
    assert [value.hex() for value in found] == [standardised(*of_one).hex() for of_one in numbers]


def test_as_far_as_the_sums_fit_they_are_exact_and_beyond_nothing_is_given(lake: Lake) -> None:
    draws = random.Random(7)
    crowd = [[draws.randint(0, 1_000_000) for _ in range(3000)] + [0, 1_000_000] * 1500]
    assert of_columns(advantages_of(Queries(lake), rewarded(crowd, draws))) == of_lists(crowd)
    with pytest.raises(LakeError):
        advantages_of(Queries(lake), rewarded([[0, 1_000_000] * 3100], draws))
