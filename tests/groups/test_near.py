"""Near-copies among signatures: found whatever their order, and never beyond the threshold."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.groups.near import MAX_BUCKET, Index, components, near_pairs, rows_per_band, similarity
from pipelines.signatures import Making, matrix_of
from tests.requests import edited, request

MAKING = Making()


def table_of(texts: list[str]) -> np.ndarray:
    return matrix_of(texts, MAKING)[0]


def parts(table: np.ndarray, threshold: float = 0.8) -> set[frozenset[int]]:
    labels = components(len(table), *near_pairs(table, threshold))
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=25), st.randoms())
def test_clusters_do_not_depend_on_the_order(drawn: list[tuple[int, int]], draws: random.Random) -> None:
    texts = [
        edited(request(template, words=150), 1, seed=copy) if copy else request(template, words=150) for template, copy in drawn
    ]
    table = table_of(texts) if texts else np.empty((0, 128), np.uint8)
    order = list(range(len(texts)))
    draws.shuffle(order)
    moved = parts(table[order])
    assert {frozenset(order[place] for place in part) for part in moved} == parts(table)
    by_template = {frozenset(place for place, one in enumerate(drawn) if one[0] == template) for template, _ in drawn}
    assert parts(table) == by_template


@given(st.integers(2, 200))
@settings(max_examples=20)
def test_identical_texts_are_always_near(number: int) -> None:
    table = table_of([request(1)] * number + [request(2)])
    assert parts(table, 1.0) == {frozenset(range(number)), frozenset([number])}
    index = Index(table[:number], 1.0)
    here, there, found = index.matches(table[:1])
    assert here.tolist() == list(range(number)) and set(there.tolist()) == {0} and set(found.tolist()) == {1.0}


def test_no_pair_is_below_the_threshold() -> None:
    texts = [edited(request(template, words=120), edits, seed=edits) for template in range(20) for edits in range(1, 12)]
    table = table_of(texts)
    for threshold in (0.6, 0.8, 0.95):
        ones, others = near_pairs(table, threshold)
        assert (similarity(table[ones], table[others]) >= threshold).all()
        here, there, found = Index(table[:110], threshold).matches(table[110:])
        assert np.array_equal(found, similarity(table[:110][here], table[110:][there]))
        assert (found >= threshold).all()


def test_an_index_finds_what_comparing_all_finds() -> None:
    one = table_of([edited(request(template, words=150), 2, seed=9) for template in range(60)])
    other = table_of([edited(request(template, words=150), 1, seed=7) for template in range(30, 90)])
    every = np.array([similarity(np.repeat(other[place : place + 1], 60, axis=0), one) for place in range(60)])
    there, here = np.nonzero(every >= 0.8)
    found = Index(one, 0.8).matches(other)
    assert set(zip(found[0].tolist(), found[1].tolist(), strict=True)) == set(zip(here.tolist(), there.tolist(), strict=True))


def test_one_template_thousands_of_times_is_one_cluster_without_every_pair() -> None:
    texts = [edited(request(1, words=400), 1, seed=copy) for copy in range(3000)]
    table = table_of(texts)
    ones, _ = near_pairs(table, 0.8)
    assert len(ones) < 3000 * 30 * (MAX_BUCKET + 1)
    assert len(parts(table)) == 1


def test_bands_keep_their_recall_at_the_threshold() -> None:
    for permutations in (16, 64, 128, 1024):
        for threshold in (0.5, 0.8, 0.9, 1.0):
            rows = rows_per_band(permutations, threshold)
            assert rows == 1 or 1 - (1 - threshold**rows) ** (permutations // rows) >= 0.998
    assert rows_per_band(128, 0.8) == 6


def test_components_are_named_by_their_smallest_place() -> None:
    ones, others = np.array([7, 5, 3, 8]), np.array([5, 3, 7, 9])
    assert components(10, ones, others).tolist() == [0, 1, 2, 3, 4, 3, 6, 3, 8, 8]
    chain = np.arange(999)
    assert set(components(1000, chain, chain + 1).tolist()) == {0}


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_is_near_where_there_is_nothing(number: int) -> None:
    table = table_of([request(1)])[:number]
    assert [len(part) for part in near_pairs(table, 0.8)] == [0, 0]
    assert [len(part) for part in Index(table_of([request(2)]), 0.8).matches(table)] == [0, 0, 0]
    assert [len(part) for part in Index(table[:0], 0.8).matches(table_of([request(2)]))] == [0, 0, 0]
