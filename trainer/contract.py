"""What the pipelines and the trainer agree on: batch rows, manifests, the root of the error tree, the one advantage function.

Imports the standard library only, so that both sides can read it: the pipelines without torch, the trainer without
Dagster, and a test imports it where torch is blocked. Changing a schema here raises SCHEMA_VERSION; a batch or
checkpoint of another version is refused by name rather than guessed at.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1

REWARD_UNIT = 1_000_000
"""Rewards are integers of 1e-6, so that the sums over a group are exact whatever the order or the number of threads."""

MIN_SPREAD = 1_000
"""max - min below or at this (1e-3 in reward) is no spread: normalising it would blow rounding noise up to full strength."""

LANES = ("grpo", "grpo_recomputed", "sft", "held_out", "audit", "excluded")

ROWS_FILE = "rows.parquet"
MANIFEST_FILE = "manifest.json"

EXIT_OK = 0
EXIT_REFUSED = 3
"""A batch, a config or a checkpoint did not hold what it says; nothing was trained."""
EXIT_DIVERGED = 4
"""The loss or a gradient was not a number; the rows are named, no checkpoint was written."""


class NightshiftError(Exception):
    """The root of every error that nightshift raises on purpose; `pipelines/errors.py` draws the whole tree.

    The message is one line that says what to do; ids that it is about stand in `ids`.
    """

    exit_code = 1

    def __init__(self, message: str, **ids: Any) -> None:
        super().__init__(message)
        self.ids = ids


class ContractError(NightshiftError):
    """A batch, a run configuration or a checkpoint breaks this contract."""

    exit_code = EXIT_REFUSED


class BatchRefusedError(ContractError):
    """A batch whose schema, hash, mask or lane does not hold; the message names the batch and the row."""


class RunRefusedError(ContractError):
    """A run.toml that cannot be trained as it stands."""


class CheckpointRefusedError(ContractError):
    """A checkpoint folder without its manifest, with a file of another hash, or with a file type that can execute."""


BATCH_COLUMNS: tuple[tuple[str, str], ...] = (
    ("row_hash", "string"),
    ("trajectory_id", "string"),
    ("group_id", "string"),
    ("turn", "int32"),
    ("token_ids", "list<int32>"),
    ("sampled", "list<bool>"),
    ("behaviour_logprobs", "list<float32>"),
    ("advantage", "float64"),
    ("weight", "float64"),
    ("lane", "string"),
    ("policy_version", "string"),
    ("base_model", "string"),
    ("tokenizer_hash", "string"),
    ("struck", "bool"),
)
"""One row is one token sequence: a prompt and what the policy sampled after it, for one turn of one trajectory.

`token_ids` int32 [T]; `sampled` bool [T], true exactly where the policy sampled the token (0 < sum < T, or the row is
refused); `behaviour_logprobs` float32 [T], natural logarithms under the sampling policy, null at positions that were
not sampled, the whole list null where the sampler logged none; `advantage` is that of the trajectory and the same on
each of its rows; `weight` scales the row in the loss (1.0 unless a rule says otherwise); `struck` marks a row whose
content was erased: its hash, ids and weight stay so that `batch_id` still verifies, and a trainer refuses the batch.
"""


def advantages(rewards: Sequence[int]) -> list[float] | None:
    """Advantages of one group: (reward - group mean) / group population standard deviation, without an epsilon.

    `rewards` are integers of 1e-6 (REWARD_UNIT), one per attempt at one task. Returns floats in the same order, or
    None where the group has no spread (fewer than two members, or max - min <= MIN_SPREAD): it teaches nothing.
    The sums are taken in integers, so the result depends neither on order nor on shifting or scaling the rewards.

    GRPO, DeepSeekMath (arXiv 2402.03300), outcome supervision; the sample is the population, hence no Bessel term.
    """
    if len(rewards) < 2 or max(rewards) - min(rewards) <= MIN_SPREAD:
        return None
    size, total = len(rewards), sum(rewards)
    scatter = size * sum(reward * reward for reward in rewards) - total * total
    return [standardised(size * reward - total, scatter) for reward in rewards]


def standardised(centred: Any, scatter: Any, root: Callable[[Any], Any] = math.sqrt) -> Any:
    """The one place where advantages become floats: `centred` = n * r - sum(r), by the root of `scatter` = n * sum(r^2) - sum(r)^2.

    Both are exact integers, scatter above 0, of one attempt or int64 [N] of many with `root` numpy's: both roots and both
    ways from integers to floats round to the nearest, as IEEE 754 says, so that columns and lists agree bit for bit.
    """
    return centred / root(scatter)


def root_of(row_hashes: Iterable[str]) -> str:
    """The id of a batch: `bat_` and 128 bits of SHA-256 over its sorted row hashes. The hashes themselves are keyed."""
    digest = hashlib.sha256()
    for row_hash in sorted(row_hashes):
        digest.update(row_hash.encode() + b"\n")
    return "bat_" + digest.hexdigest()[:32]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_json_atomically(path: Path, content: Mapping[str, Any]) -> None:
    """Write a manifest so that it is either whole or absent: temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(content, stream, indent=1, sort_keys=True)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(frozen=True)
class BatchManifest:
    """The record beside `rows.parquet`, written last: a batch folder without it does not exist."""

    batch_id: str
    """`root_of(row_hashes)`."""
    lane: str
    """One of LANES; a batch has one lane and one loss."""
    night: str
    """The day (UTC, YYYY-MM-DD) of the night that froze the batch."""
    rubric_hash: str
    """Rubric in force when the rewards were combined."""
    groups: list[str]
    """Ids of the groups that it holds, sorted."""
    policy_versions: list[str]
    """Behaviour policies that sampled its rows, sorted."""
    base_model: str
    tokenizer_hash: str
    num_rows: int
    num_trajectories: int
    num_sampled_tokens: int
    row_hashes: list[str]
    """In the order of the rows."""
    rows_sha256: str
    """SHA-256 of the bytes of rows.parquet."""
    schema_version: int = SCHEMA_VERSION

    def write(self, folder: Path) -> None:
        """Write the manifest into the batch folder, after rows.parquet."""
        write_json_atomically(folder / MANIFEST_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> BatchManifest:
        """Read and verify a manifest (not the rows); BatchRefusedError names what does not hold."""
        content = _read_manifest(folder, BatchRefusedError)
        manifest = _from_json(cls, content, folder, BatchRefusedError)
        if manifest.lane not in LANES:
            raise BatchRefusedError(f"batch {manifest.batch_id}: unknown lane {manifest.lane!r}", batch_id=manifest.batch_id)
        if root_of(manifest.row_hashes) != manifest.batch_id:
            raise BatchRefusedError(
                f"batch {manifest.batch_id}: the hashes of its rows do not add up to its id; freeze it again",
                batch_id=manifest.batch_id,
            )
        return manifest

    def verify_rows(self, folder: Path) -> None:
        """Hold rows.parquet against the manifest; BatchRefusedError when a byte differs."""
        rows = folder / ROWS_FILE
        if not rows.exists():
            raise BatchRefusedError(f"batch {self.batch_id}: {rows} is missing", batch_id=self.batch_id)
        if sha256_of(rows) != self.rows_sha256:
            raise BatchRefusedError(
                f"batch {self.batch_id}: {rows} is not the file that was frozen (sha256 differs)", batch_id=self.batch_id
            )


@dataclass(frozen=True)
class CheckpointManifest:
    """The record of a checkpoint folder, written last: a folder without it is not a checkpoint."""

    checkpoint_id: str
    """`ckp_` and 128 bits of SHA-256 over the adapter's bytes and the run."""
    run_id: str
    parent: str | None
    """checkpoint_id that training started from; None where it started from the base model."""
    batches: list[str]
    lane: str
    loss: str
    """`grpo`, `cispo`, `gspo` or `sft`."""
    backend: str
    base_model: str
    tokenizer_hash: str
    seed: int
    num_steps: int
    num_trained_tokens: int
    metrics: dict[str, float]
    """Means over the run: loss, clip_fraction, grad_norm, …"""
    config_hash: str
    files: dict[str, str]
    """SHA-256 by file name, all files of the folder but this one."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of torch, transformers, peft."""
    schema_version: int = SCHEMA_VERSION

    def write(self, folder: Path) -> None:
        """Write the manifest into the checkpoint folder, after everything else."""
        write_json_atomically(folder / MANIFEST_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> CheckpointManifest:
        """Read a manifest and verify every file that it names; CheckpointRefusedError says which one differs."""
        content = _read_manifest(folder, CheckpointRefusedError)
        manifest = _from_json(cls, content, folder, CheckpointRefusedError)
        for name, expected in manifest.files.items():
            if name.endswith((".bin", ".pt", ".pth", ".pkl", ".pickle")):
                raise CheckpointRefusedError(f"{folder / name}: pickled weights are refused; only safetensors are read")
            if not (folder / name).exists() or sha256_of(folder / name) != expected:
                raise CheckpointRefusedError(f"{folder / name} is not the file that its manifest names (sha256 differs)")
        return manifest


def _read_manifest(folder: Path, error: type[ContractError]) -> dict[str, Any]:
    path = folder / MANIFEST_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise error(f"{folder} holds no {MANIFEST_FILE}: it was never finished") from None
    except ValueError as problem:
        raise error(f"{path} is not readable as JSON ({problem})") from None
    if content.get("schema_version") != SCHEMA_VERSION:
        raise error(
            f"{path} has schema version {content.get('schema_version')!r} and this trainer reads {SCHEMA_VERSION}; "
            "use the nightshift that wrote it"
        )
    return content


def _from_json(kind: Any, content: Mapping[str, Any], folder: Path, error: type[ContractError]) -> Any:
    try:
        return kind(**content)
    except TypeError as problem:
        raise error(f"{folder / MANIFEST_FILE} does not hold the fields of {kind.__name__} ({problem})") from None
