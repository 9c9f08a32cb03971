"""Reads: the logged calls of trajectories. Writes: rows of trainer.contract.BATCH_COLUMNS, in memory. Next: batches.

One row is one call: the prompt's ids and the sampled ids exactly as the sampler logged them, nothing rendered anew, so
that every sampled token stands in exactly one row and nothing else carries gradient (I7).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa

from pipelines.ids import Identity
from trainer.contract import BATCH_COLUMNS

_ARROW = {
    "string": pa.string(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "list<int32>": pa.list_(pa.int32()),
    "list<bool>": pa.list_(pa.bool_()),
    "list<float32>": pa.list_(pa.float32()),
}
SCHEMA = pa.schema([pa.field(name, _ARROW[kind]) for name, kind in BATCH_COLUMNS])
"""BATCH_COLUMNS in Arrow's types."""

_LARGEST_LOGPROB = 1e-3
"""Logarithms of probabilities are at most 0, but for the rounding of the engine that logged them."""


class RowRefusedError(ValueError):
    """The logged tokens of a trajectory do not make training rows; says what does not hold (I7)."""


@dataclass(frozen=True)
class Sequences:
    """The token sequences of one trajectory, one per call in logged order."""

    token_ids: list[np.ndarray]
    """int32 [T] each: prompt, then sampled."""
    sampled: list[np.ndarray]
    """bool each, of the answer at its end: false where a token stands for a secret that redaction took out."""
    logprobs: list[np.ndarray]
    """float32 of the answer, natural logarithms under the sampler; 0 where it did not sample."""


@dataclass(frozen=True)
class Member:
    """One trajectory of a batch."""

    group_id: str
    trajectory_id: str
    policy_version: str
    advantage: float
    generation: int
    """How many batches consumed its group before: 0, or more with `--again`. Part of the row hash, so that a batch that
    is frozen again has another id."""
    sequences: Sequences


def sequences_of(calls: str, num_sampled_tokens: int) -> Sequences:
    """Token sequences from a trajectory's `calls` column; RowRefusedError where they break I7.

    `num_sampled_tokens` is what the trajectory says it sampled: trainable tokens over its rows must come to exactly that.
    """
    token_ids: list[np.ndarray] = []
    marks: list[np.ndarray] = []
    logprobs: list[np.ndarray] = []
    for index, call in enumerate(orjson.loads(calls)):
        prompt, sampled, logged = (call.get(name) for name in ("prompt_token_ids", "token_ids", "logprobs"))
        if prompt is None or sampled is None or logged is None:
            raise RowRefusedError(f"call {index}: prompt ids, sampled ids or logprobs were not logged")
        if not prompt or not sampled:
            raise RowRefusedError(f"call {index}: no {'prompt' if not prompt else 'sampled token'}")
        if len(sampled) != len(logged):
            raise RowRefusedError(f"call {index}: {len(sampled)} sampled ids and {len(logged)} logprobs")
        mark = _mark(len(sampled), call.get("redacted_spans"), index)
        values = _numbers([value if own else 0.0 for value, own in zip(logged, mark, strict=True)], np.float32, index)
        # a comparison that is false for NaN, too
        if not bool(np.all((values <= _LARGEST_LOGPROB) & (values > -np.inf))):
            raise RowRefusedError(f"call {index}: a logprob is no finite number at or below 0")
        ids = _numbers([*prompt, *sampled], np.int64, index)
        if ids.min() < 0 or ids.max() > np.iinfo(np.int32).max:
            raise RowRefusedError(f"call {index}: a token id is negative or too large")
        token_ids.append(ids.astype(np.int32))
        marks.append(mark)
        logprobs.append(values)
    total = sum(int(mark.sum()) for mark in marks)
    if total != num_sampled_tokens or not marks:
        raise RowRefusedError(f"its calls sampled {total} tokens and the trajectory {num_sampled_tokens}")
    return Sequences(token_ids, marks, logprobs)


def table_of(members: Sequence[Member], *, identity: Identity, lane: str, base_model: str, tokenizer_hash: str) -> pa.Table:
    """Rows of a batch in the order of the members, calls in theirs, with their hashes. At least one member."""
    flat = [
        (member, turn, ids, mark, logged)
        for member in members
        for turn, (ids, mark, logged) in enumerate(
            zip(member.sequences.token_ids, member.sequences.sampled, member.sequences.logprobs, strict=True)
        )
    ]
    offsets = np.cumsum([0, *(len(ids) for _, _, ids, _, _ in flat)], dtype=np.int32)
    sampled = np.zeros(offsets[-1], dtype=bool)
    logprobs = np.zeros(offsets[-1], dtype=np.float32)
    for end, (_, _, _, mark, logged) in zip(offsets[1:], flat, strict=True):
        sampled[end - len(mark) : end] = mark
        logprobs[end - len(mark) : end] = logged

    def lists(values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(offsets), values)

    size = len(flat)
    columns = {
        "row_hash": pa.array([""] * size, pa.string()),
        "trajectory_id": pa.array([member.trajectory_id for member, *_ in flat], pa.string()),
        "group_id": pa.array([member.group_id for member, *_ in flat], pa.string()),
        "turn": pa.array([turn for _, turn, *_ in flat], pa.int32()),
        "token_ids": lists(pa.array(np.concatenate([ids for _, _, ids, _, _ in flat]), pa.int32())),
        "sampled": lists(pa.array(sampled)),
        "behaviour_logprobs": lists(pa.array(logprobs, mask=~sampled)),
        "advantage": pa.array([member.advantage for member, *_ in flat], pa.float64()),
        "weight": pa.array([1.0] * size, pa.float64()),
        "lane": pa.array([lane] * size, pa.string()),
        "policy_version": pa.array([member.policy_version for member, *_ in flat], pa.string()),
        "base_model": pa.array([base_model] * size, pa.string()),
        "tokenizer_hash": pa.array([tokenizer_hash] * size, pa.string()),
        "struck": pa.array([False] * size, pa.bool_()),
    }
    table = pa.table(columns, schema=SCHEMA)
    generations = {member.group_id: member.generation for member in members}
    return table.set_column(0, "row_hash", pa.array(hashes_of(table, identity=identity, generations=generations), pa.string()))


def hashes_of(table: pa.Table, *, identity: Identity, generations: dict[str, int]) -> list[str]:
    """Keyed hashes of the rows' content, `row_hash` itself aside: what the rows of a frozen file are held against.

    `generations`: by group id, how many batches consumed the group before this one.
    """
    table = table.combine_chunks()
    ids, sampled, logged = (table.column(name) for name in ("token_ids", "sampled", "behaviour_logprobs"))
    scalars = table.select(
        ["trajectory_id", "group_id", "turn", "advantage", "weight", "lane", "policy_version", "base_model", "tokenizer_hash"]
    ).to_pylist()
    hashes: list[str] = []
    for index, row in enumerate(scalars):
        mask = np.asarray(sampled[index].values.to_numpy(zero_copy_only=False), dtype=bool)
        logprobs = logged[index].values.fill_null(0.0).to_numpy(zero_copy_only=False)
        hashes.append(
            identity.of(
                "row",
                row["trajectory_id"],
                row["group_id"],
                str(row["turn"]),
                ids[index].values.to_numpy(zero_copy_only=False).astype("<i4").tobytes(),
                np.packbits(mask).tobytes(),
                logprobs.astype("<f4").tobytes(),
                struct.pack("<2d", row["advantage"], row["weight"]),
                row["lane"],
                row["policy_version"],
                row["base_model"],
                row["tokenizer_hash"],
                str(generations[row["group_id"]]),
            )
        )
    return hashes


def _mark(length: int, spans: Sequence[Sequence[int]] | None, index: int) -> np.ndarray:
    mark = np.ones(length, dtype=bool)
    try:
        for start, end in spans or ():
            if not 0 <= start < end <= length:
                raise ValueError
            mark[start:end] = False
    except (TypeError, ValueError):
        raise RowRefusedError(f"call {index}: its redacted spans are none of its {length} sampled ids") from None
    if not mark.any():
        raise RowRefusedError(f"call {index}: all of its sampled tokens stand for secrets")
    return mark


def _numbers(values: Sequence[float], kind: type[np.generic], index: int) -> np.ndarray:
    integral = kind is np.int64
    if not set(map(type, values)) <= ({int} if integral else {int, float}):  # bool is neither: true is no token id
        raise RowRefusedError(f"call {index}: {'a token id is no integer' if integral else 'a logprob is no number'}")
    try:
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is refused for that
            return np.asarray(values).astype(kind)
    except (OverflowError, TypeError):  # integers beyond 64 bits
        raise RowRefusedError(f"call {index}: a number is too large") from None
