"""Rows packed as a tree of shared prefixes: every distinct prefix goes through the model once, with its gradient.

The siblings of a group have the same prompt, tasks of one harness the same system turn, and answers often begin alike.
Rows are sorted by their tokens and laid into one sequence in which a token that continues a known prefix is not repeated.
Position ids say how deep a token stands in its own row, and a token attends to its ancestors alone, so that hidden states,
logprobs and gradients are those of the separate rows (to rounding), for a fraction of the tokens and without padding.

The last sampled token of a row predicts nothing, so it never enters the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.batches import Row


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """Rows in one packed sequence of T tokens, with P tokens that predict and N sampled tokens over all rows."""

    rows: tuple[Row, ...]
    token_ids: np.ndarray
    """int64 [T]."""
    positions: np.ndarray
    """int64 [T]: depth in the row, from 0."""
    visible: np.ndarray
    """bool [T, T]: visible[i, j] where j is i or an ancestor of i."""
    predictors: np.ndarray
    """int64 [P], ascending, each once: tokens whose hidden state predicts a sampled one."""
    predicted_by: np.ndarray
    """int64 [N]: index into `predictors`, row after row."""
    targets: np.ndarray
    """int64 [N]: the sampled tokens, row after row."""
    row_of: np.ndarray
    """int64 [N]: index into `rows`."""


def plant(rows: Sequence[Row], max_tokens: int) -> list[PrefixTree]:
    """Pack rows into trees of at most `max_tokens` tokens each (a single longer row is a tree of its own).

    Attention costs T^2 over a whole tree, so one tree for everything is not the fastest; rows that share the most stand
    next to each other in the order, so cutting it repeats little. The result depends on the rows alone, not on their order.
    """
    trees, current, num_tokens = [], list[tuple[Row, int]](), 0
    previous: tuple[int, ...] = ()
    for row in sorted(rows, key=lambda row: (_entered(row), row.row_hash)):
        entered = _entered(row)
        shared = _num_shared(previous, entered)
        if current and num_tokens + len(entered) - shared > max_tokens:
            trees.append(_tree(current))
            current, num_tokens, shared = [], 0, 0
        current.append((row, shared))
        num_tokens += len(entered) - shared
        previous = entered
    trees.append(_tree(current))
    return trees


def _entered(row: Row) -> tuple[int, ...]:
    return row.token_ids[: int(row.sampled_at[-1])]


def _num_shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _tree(planted: list[tuple[Row, int]]) -> PrefixTree:
    total = sum(int(row.sampled_at[-1]) - shared for row, shared in planted)
    token_ids, positions = np.zeros(total, np.int64), np.zeros(total, np.int64)
    visible = np.zeros((total, total), bool)
    predicting, targets, row_of = [], [], []
    path, top = np.zeros(0, np.int64), 0
    for index, (row, shared) in enumerate(planted):
        depth = int(row.sampled_at[-1])
        new = np.arange(top, top + depth - shared)
        # in sorted order the longest prefix shared with any earlier row is the one shared with the row just before
        path = np.concatenate([path[:shared], new])
        ids = np.asarray(row.token_ids, np.int64)
        token_ids[new], positions[new] = ids[shared:depth], np.arange(shared, depth)
        visible[np.ix_(new, path)] = np.arange(depth)[None, :] <= positions[new][:, None]
        predicting.append(path[row.sampled_at - 1])
        targets.append(ids[row.sampled_at])
        row_of.append(np.full(len(row.sampled_at), index, np.int64))
        top += len(new)
    predictors, predicted_by = np.unique(np.concatenate(predicting), return_inverse=True)
    return PrefixTree(
        rows=tuple(row for row, _ in planted),
        token_ids=token_ids,
        positions=positions,
        visible=visible,
        predictors=predictors,
        predicted_by=predicted_by,
        targets=np.concatenate(targets),
        row_of=np.concatenate(row_of),
    )
