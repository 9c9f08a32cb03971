"""Batches, read and verified before anything heavy is loaded: what does not hold is refused by batch and row.

A row that slips through with a wrong mask or of another tokenizer does not fail later, it teaches nonsense; so every
row is held against the contract (I7) and against the model that will be trained.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainer.contract import BATCH_COLUMNS, ROWS_FILE, BatchManifest, BatchRefusedError, RunRefusedError
from trainer.run import RunConfig

TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "list<int32>": pa.list_(pa.int32()),
    "list<bool>": pa.list_(pa.bool_()),
    "list<float32>": pa.list_(pa.float32()),
}
"""Type names of the contract -> arrow types."""

LOGPROB_SLACK = 1e-4
"""A sampler's rounding may put the logarithm of a probability of 1 this far above 0."""


@dataclass(frozen=True)
class BaseModel:
    """What rows are held against, read from a model folder without loading the model."""

    folder: Path
    name: str
    tokenizer_hash: str
    vocab_size: int
    max_positions: int

    @classmethod
    def read(cls, run: RunConfig) -> BaseModel:
        """Find the run's base model (converting the embedded one when needed); RunRefusedError where it cannot be read."""
        from trainer import embedded

        try:
            folder = embedded.resolve(run.base_model)
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            tokenizer = embedded.tokenizer_hash(folder)
            return cls(folder, run.base_model_name, tokenizer, config["vocab_size"], config["max_position_embeddings"])
        except (OSError, ValueError, KeyError) as problem:
            raise RunRefusedError(f"base model {run.base_model!r} cannot be read: {problem}") from None


@dataclass(frozen=True, eq=False)
class Row:
    """One token sequence to learn from. T is its length, S the number of sampled tokens."""

    row_hash: str
    trajectory_id: str
    group_id: str
    token_ids: tuple[int, ...]
    """[T]."""
    sampled_at: np.ndarray
    """int64 [S], ascending: positions of the tokens that the policy sampled; all above 0."""
    behaviour_logprobs: np.ndarray
    """float32 [S]: of those tokens, under the policy that sampled them."""
    advantage: float
    weight: float


def read(run: RunConfig, model: BaseModel) -> tuple[list[str], list[Row]]:
    """Ids and rows of the run's batches, in the order of run.toml; BatchRefusedError names what does not hold."""
    rows: list[Row] = []
    batch_ids: list[str] = []
    held: dict[str, str] = {}
    for folder in run.batch_folders:
        manifest = BatchManifest.read(folder)
        manifest.verify_rows(folder)
        batch_ids.append(manifest.batch_id)
        _verify_identity(manifest, run, model)
        for row in _rows(folder, manifest, model):
            if row.row_hash in held:
                raise BatchRefusedError(
                    f"row {row.row_hash} is in batch {held[row.row_hash]} and again in {manifest.batch_id}: "
                    "a row trains once; take one of them out of run.toml",
                    batch_id=manifest.batch_id,
                )
            held[row.row_hash] = manifest.batch_id
            rows.append(row)
    return batch_ids, rows


def shuffled_advantages(rows: list[Row], seed: int) -> list[Row]:
    """The control: the advantages of a group's trajectories, permuted among them by the seed; rows keep their order."""
    permuted: dict[tuple[str, str], float] = {}
    groups: dict[str, dict[str, float]] = {}
    for row in rows:
        groups.setdefault(row.group_id, {})[row.trajectory_id] = row.advantage
    for group_id, by_trajectory in groups.items():
        values = list(by_trajectory.values())
        random.Random(f"{seed} {group_id}").shuffle(values)
        permuted.update({(group_id, trajectory_id): value for trajectory_id, value in zip(by_trajectory, values, strict=True)})
    return [replace(row, advantage=permuted[row.group_id, row.trajectory_id]) for row in rows]


def _verify_identity(manifest: BatchManifest, run: RunConfig, model: BaseModel) -> None:
    if manifest.lane != run.lane:
        raise BatchRefusedError(
            f"batch {manifest.batch_id} is of lane {manifest.lane!r} and the run trains {run.lane!r}; give each lane its own run",
            batch_id=manifest.batch_id,
        )
    for name, found, wanted in (
        ("base_model", manifest.base_model, model.name),
        ("tokenizer_hash", manifest.tokenizer_hash, model.tokenizer_hash),
    ):
        if found != wanted:
            raise BatchRefusedError(
                f"batch {manifest.batch_id}: its {name} is {found!r} and the model's is {wanted!r}; "
                "train it with the model that sampled it",
                batch_id=manifest.batch_id,
            )


def _rows(folder: Path, manifest: BatchManifest, model: BaseModel) -> list[Row]:
    batch = manifest.batch_id
    try:
        table = pq.read_table(folder / ROWS_FILE)
    except (OSError, pa.ArrowException) as problem:
        raise BatchRefusedError(f"batch {batch}: {ROWS_FILE} cannot be read ({problem}); freeze it again") from None
    _verify_schema(table.schema, batch)
    content = table.to_pylist()
    # before the counts: a struck batch no longer holds the tokens that its manifest counts
    struck = [row["row_hash"] for row in content if row["struck"]]
    if struck:
        raise BatchRefusedError(
            f"batch {batch}: {len(struck)} struck rows (first {struck[0]}): their content was erased; freeze the groups again",
            batch_id=batch,
        )
    rows = [
        _row(entry, f"batch {batch}, row {number} ({entry['row_hash']})", manifest, model) for number, entry in enumerate(content)
    ]
    trajectories: dict[str, tuple[str, float]] = {}
    for row in rows:
        if trajectories.setdefault(row.trajectory_id, (row.group_id, row.advantage)) != (row.group_id, row.advantage):
            raise BatchRefusedError(
                f"batch {batch}: the rows of trajectory {row.trajectory_id} disagree on group or advantage; freeze it again",
                batch_id=batch,
            )
    counted = {
        "row_hashes": [row.row_hash for row in rows],
        "num_rows": len(rows),
        "num_trajectories": len(trajectories),
        "num_sampled_tokens": sum(len(row.sampled_at) for row in rows),
        "groups": sorted({row.group_id for row in rows}),
        "policy_versions": sorted({entry["policy_version"] for entry in content}),
    }
    for name, found in counted.items():
        if getattr(manifest, name) != found:
            shown = "" if isinstance(found, list) else f" ({found} against {getattr(manifest, name)})"
            raise BatchRefusedError(f"batch {batch}: {name} of rows and manifest differ{shown}; freeze it again", batch_id=batch)
    if not rows:
        raise BatchRefusedError(f"batch {batch} holds no rows; freeze it again", batch_id=batch)
    return rows


def _verify_schema(schema: pa.Schema, batch: str) -> None:
    wanted, found = [name for name, _ in BATCH_COLUMNS], schema.names
    if found != wanted:
        missing, unknown = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        raise BatchRefusedError(
            f"batch {batch}: columns of {ROWS_FILE} differ from the contract's "
            f"(missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}); freeze it again",
            batch_id=batch,
        )
    for name, kind in BATCH_COLUMNS:
        if not _same_type(schema.field(name).type, TYPES[kind]):
            raise BatchRefusedError(
                f"batch {batch}: column {name} is of type {schema.field(name).type}, the contract says {kind}; freeze it again",
                batch_id=batch,
            )


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    # the width of offsets is how a writer stores text and lists, not what they hold
    if pa.types.is_large_string(found):
        found = pa.string()
    if pa.types.is_large_list(found):
        found = pa.list_(found.value_type)
    return found.equals(wanted)


def _row(entry: dict[str, Any], where: str, manifest: BatchManifest, model: BaseModel) -> Row:
    def refuse(problem: str) -> BatchRefusedError:
        return BatchRefusedError(f"{where}: {problem}", batch_id=manifest.batch_id, row_hash=entry["row_hash"])

    missing = [name for name, _ in BATCH_COLUMNS if entry[name] is None and name != "behaviour_logprobs"]
    if missing:
        raise refuse(f"{missing[0]} is null; freeze it again")
    for name in ("lane", "base_model", "tokenizer_hash"):
        if entry[name] != getattr(manifest, name):
            raise refuse(f"its {name} is {entry[name]!r}, its manifest says {getattr(manifest, name)!r}; freeze it again")
    token_ids, sampled, logprobs = entry["token_ids"], entry["sampled"], entry["behaviour_logprobs"]
    if len(sampled) != len(token_ids):
        raise refuse(f"{len(token_ids)} token ids and a sampled mask of {len(sampled)}; freeze it again")
    if None in token_ids or None in sampled:
        raise refuse("a null among its token ids or in its sampled mask; freeze it again")
    if not 0 < sum(sampled) < len(sampled):
        raise refuse(f"{sum(sampled)} of {len(sampled)} tokens are sampled: nothing to learn, or no prompt; freeze it again")
    if sampled[0]:
        raise refuse("its first token is marked sampled, but nothing stands before it that could predict it; freeze it again")
    if min(token_ids) < 0 or max(token_ids) >= model.vocab_size:
        raise refuse(f"a token id outside the model's vocabulary of {model.vocab_size}; freeze it again")
    if len(token_ids) > model.max_positions:
        raise refuse(f"{len(token_ids)} tokens, and the model reads at most {model.max_positions}; leave it out")
    if logprobs is None:
        raise refuse(f"no behaviour logprobs, which lane {manifest.lane} needs; log them, or use another lane")
    if len(logprobs) != len(token_ids):
        raise refuse(f"{len(token_ids)} token ids and {len(logprobs)} behaviour logprobs; freeze it again")
    sampled_at = [position for position, mark in enumerate(sampled) if mark]
    at_sampled = [logprobs[position] for position in sampled_at]
    wrong = next((value for value in at_sampled if value is None or not math.isfinite(value) or value > LOGPROB_SLACK), 0.0)
    if wrong != 0.0:
        raise refuse(f"a behaviour logprob of {wrong} at a sampled token: no logarithm of a probability; freeze it again")
    if not math.isfinite(entry["advantage"]) or not 0 <= entry["weight"] < math.inf:
        raise refuse(f"advantage {entry['advantage']}, weight {entry['weight']}: not usable numbers; freeze it again")
    return Row(
        row_hash=entry["row_hash"],
        trajectory_id=entry["trajectory_id"],
        group_id=entry["group_id"],
        token_ids=tuple(token_ids),
        sampled_at=np.asarray(sampled_at, dtype=np.int64),
        behaviour_logprobs=np.asarray(at_sampled, dtype=np.float32),
        advantage=entry["advantage"],
        weight=entry["weight"],
    )
