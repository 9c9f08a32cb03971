"""Near-copies among signatures: LSH bands as numbers, joined by sorting, verified by the signatures themselves.

Nothing here depends on the order of rows: equal signatures are one, and all are sorted before anything else. Where hundreds
of thousands come of one template, pairs would be quadratic; so in a crowded bucket each is held against the next few and
the first alone. What belongs together meets there, or in another band.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]
_Keys = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.int64]

CHANCE = 1 / 256
"""How often two different minima end in the same byte."""
RECALL = 0.998
"""Of pairs exactly at the threshold so many share a band at least; more above it."""
MAX_BUCKET = 32
"""Neighbours in a bucket that one is held against."""
_FILTER_BITS = 22
_AT_ONCE = 1 << 19
"""Pairs that are verified at once."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


def rows_per_band(permutations: int, threshold: float) -> int:
    """As many as keep RECALL at the threshold: the more there are, the fewer pairs share a band by chance."""
    fits = [rows for rows in range(1, 9) if 1 - (1 - threshold**rows) ** (permutations // rows) >= RECALL]
    return max(fits, default=1)


def similarity(left: _Bytes, right: _Bytes) -> npt.NDArray[np.float64]:
    """Estimated Jaccard similarity of the shingles of each pair of rows."""
    same = np.count_nonzero(left == right, axis=1) / max(left.shape[1], 1)
    return np.maximum((same - CHANCE) / (1 - CHANCE), 0.0)


def near_pairs(signatures: _Bytes, threshold: float) -> tuple[_Places, _Places]:
    """Pairs of places that link all near-copies: of each crowd so many that it hangs together, not every pair."""
    distinct, standing, inverse = _distinct(signatures)
    lefts, rights = [], []
    # the place stands in the low bits of its key, so that numbers are sorted and no places
    place_bits = np.uint64(max(len(distinct), 2).bit_length())
    places = np.arange(len(distinct), dtype=np.uint64)
    for keys in _band_keys(distinct, threshold).T:
        ordered = np.sort((keys >> place_bits << place_bits) | places)
        order = (ordered & ((np.uint64(1) << place_bits) - np.uint64(1))).astype(np.int64)
        for one, other in _within_buckets(ordered >> place_bits):
            lefts.append(order[one])
            rights.append(order[other])
    lower, upper = _once(lefts, rights, len(distinct))
    kept = _verified(distinct, distinct, lower, upper) >= threshold
    # each of some that are equal hangs on the one that stands for them
    equal = np.flatnonzero(standing[inverse] != np.arange(len(signatures)))
    ones = np.concatenate([standing[lower[kept]], standing[inverse[equal]]])
    return ones, np.concatenate([standing[upper[kept]], equal])


def components(number: int, ones: _Places, others: _Places) -> _Places:
    """The smallest place that each of `number` places is linked with, over any number of pairs."""
    labels = np.arange(number)
    while True:
        lowest = np.minimum(labels[ones], labels[others])
        spread = labels.copy()
        np.minimum.at(spread, labels[ones], lowest)
        np.minimum.at(spread, labels[others], lowest)
        spread = spread[spread]
        if np.array_equal(spread, labels):
            return labels
        labels = spread


class Index:
    """Some signatures that many others are held against, portion by portion."""

    def __init__(self, signatures: _Bytes, threshold: float) -> None:
        self.threshold = threshold
        self._distinct, _, inverse = _distinct(signatures)
        self._members = np.argsort(inverse, kind="stable")
        self._bounds = np.searchsorted(inverse[self._members], np.arange(len(self._distinct) + 1))
        keys = _band_keys(self._distinct, threshold)
        places = np.repeat(np.arange(len(keys)), keys.shape[1])
        order = np.lexsort((places, keys.ravel()))
        self._keys, self._places = keys.ravel()[order], places[order]

    @cached_property
    def _filter(self) -> npt.NDArray[np.bool_]:
        """Most keys that are not here are known by one look at a table that the cache holds."""
        seen = np.zeros(1 << _FILTER_BITS, np.bool_)
        seen[_slots(self._keys)] = True
        return seen

    def matches(self, others: _Bytes) -> tuple[_Places, _Places, npt.NDArray[np.float64]]:
        """(place here, place among `others`, similarity) of near-copies, sorted by both places.

        Of a bucket in which more than MAX_BUCKET stand only the first so many are seen.
        """
        keys = _band_keys(others, self.threshold)
        rows, bands = np.nonzero(self._filter[_slots(keys)])
        asked = keys[rows, bands]
        first = np.searchsorted(self._keys, asked, side="left")
        count = np.minimum(np.searchsorted(self._keys, asked, side="right") - first, MAX_BUCKET)
        here, there = self._places[_ranges(first, count)], np.repeat(rows, count)
        there, here = _once_of(there, here, len(self._distinct))
        found = _verified(self._distinct, others, here, there)
        kept = found >= self.threshold
        here, there, found = here[kept], there[kept], found[kept]
        count = self._bounds[here + 1] - self._bounds[here]
        places = self._members[_ranges(self._bounds[here], count)]
        there, found = np.repeat(there, count), np.repeat(found, count)
        order = np.lexsort((there, places))
        return places[order], there[order], found[order]


def _distinct(signatures: _Bytes) -> tuple[_Bytes, _Places, _Places]:
    """Signatures without repetition, in an order of their own; a place where each stands; and which stands at each place."""
    number, permutations = signatures.shape
    padded = np.zeros((number, -(-permutations // 8) * 8), np.uint8)
    padded[:, :permutations] = signatures
    words = padded.view("<u8").astype(np.uint64)
    words ^= words >> np.uint64(29)
    words *= _ODD * np.arange(1, 2 * words.shape[1], 2, dtype=np.uint64)
    _, standing, inverse = np.unique(words.sum(axis=1, dtype=np.uint64), return_index=True, return_inverse=True)
    return signatures[standing], standing, inverse.ravel()


def _band_keys(signatures: _Bytes, threshold: float) -> _Keys:
    """(n, bands): the bytes of each band as one number, told apart by band."""
    number, permutations = signatures.shape
    rows = rows_per_band(permutations, threshold)
    bands = permutations // rows
    padded = np.zeros((number + 1, permutations + 8), np.uint8)
    padded[:number, :permutations] = signatures
    eight = np.ndarray((number, bands), "<u8", buffer=padded, strides=(padded.shape[1], rows))
    keys = eight.astype(np.uint64) & np.uint64((1 << 8 * rows) - 1)
    keys += np.arange(1, bands + 1, dtype=np.uint64) * _ODD
    keys *= _ODD
    keys ^= keys >> np.uint64(32)
    return keys * _ODD


def _slots(keys: _Keys) -> _Keys:
    return keys >> np.uint64(64 - _FILTER_BITS)


def _within_buckets(keys: _Keys) -> Iterator[tuple[_Places, _Places]]:
    """Places of equal sorted keys: each with its next MAX_BUCKET, and with the first of its bucket."""
    place = np.flatnonzero(keys[1:] == keys[:-1])
    for step in range(1, MAX_BUCKET + 1):
        if not place.size:
            return
        yield place, place + step
        place = place[place + step + 1 < len(keys)]
        place = place[keys[place + step + 1] == keys[place]]
    yield np.searchsorted(keys, keys[place], side="left"), place


def _ranges(first: _Places, count: _Places) -> _Places:
    """first[0], first[0] + 1, … as many as count[0] says; then those of first[1]; and so on."""
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(int(count.sum()))


def _once(lefts: list[_Places], rights: list[_Places], number: int) -> tuple[_Places, _Places]:
    empty = [np.empty(0, np.int64)]
    left, right = np.concatenate([*lefts, *empty]), np.concatenate([*rights, *empty])
    lower, upper = np.minimum(left, right), np.maximum(left, right)
    return _once_of(lower[lower != upper], upper[lower != upper], number)


def _once_of(left: _Places, right: _Places, number: int) -> tuple[_Places, _Places]:
    """Pairs without repetition, sorted; `right` is below `number`."""
    pairs = left * max(number, 1) + right
    pairs.sort()
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])] if pairs.size else pairs
    return pairs // max(number, 1), pairs % max(number, 1)


def _verified(one: _Bytes, other: _Bytes, left: _Places, right: _Places) -> npt.NDArray[np.float64]:
    """Similarity of each pair, worked on in portions, so that memory does not grow with them."""
    starts = range(0, len(left), _AT_ONCE)
    parts = [similarity(one[left[at : at + _AT_ONCE]], other[right[at : at + _AT_ONCE]]) for at in starts]
    return np.concatenate([*parts, np.empty(0)])
