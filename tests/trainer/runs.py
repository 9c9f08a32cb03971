"""Makes what a trainer reads: frozen batches and run.toml files over any rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from trainer.batches import TYPES
from trainer.contract import BATCH_COLUMNS, ROWS_FILE, BatchManifest, root_of, sha256_of

BASE_MODEL = "toy"
SCHEMA = pa.schema([pa.field(name, TYPES[kind]) for name, kind in BATCH_COLUMNS])


def make_row(
    group: str,
    member: int,
    prompt: list[int],
    answer: list[int],
    *,
    advantage: float,
    logprobs: list[float] | None = None,
    tokenizer_hash: str = "",
    **changed: Any,
) -> dict[str, Any]:
    """One row of BATCH_COLUMNS: a prompt, the answer that was sampled after it, and the logprobs of the answer's tokens."""
    name = f"{group} {member}"
    known = [None] * len(prompt) + (logprobs if logprobs is not None else [-1.0] * len(answer))
    return {
        "row_hash": "row_" + hashlib.sha256(name.encode()).hexdigest()[:32],
        "trajectory_id": f"trj_{name}",
        "group_id": f"grp_{group}",
        "turn": 0,
        "token_ids": prompt + answer,
        "sampled": [False] * len(prompt) + [True] * len(answer),
        "behaviour_logprobs": known,
        "advantage": advantage,
        "weight": 1.0,
        "lane": "grpo",
        "policy_version": "toy@0",
        "base_model": BASE_MODEL,
        "tokenizer_hash": tokenizer_hash,
        "struck": False,
        **changed,
    }


def freeze(folder: Path, rows: Iterable[dict[str, Any]], *, schema: pa.Schema = SCHEMA, **changed: Any) -> Path:
    """Write rows and manifest into `folder`; `changed` overrides fields of the manifest."""
    rows = list(rows)
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / ROWS_FILE)
    hashes = [row["row_hash"] for row in rows]
    manifest = {
        "batch_id": root_of(hashes),
        "lane": "grpo",
        "night": "2026-11-20",
        "rubric_hash": "rubric",
        "groups": sorted({row["group_id"] for row in rows}),
        "policy_versions": sorted({row["policy_version"] for row in rows}),
        "base_model": rows[0]["base_model"],
        "tokenizer_hash": rows[0]["tokenizer_hash"],
        "num_rows": len(rows),
        "num_trajectories": len({row["trajectory_id"] for row in rows}),
        "num_sampled_tokens": sum(sum(row["sampled"]) for row in rows),
        "row_hashes": hashes,
        "rows_sha256": sha256_of(folder / ROWS_FILE),
        **changed,
    }
    BatchManifest(**manifest).write(folder)
    return folder


def write_run(folder: Path, batches: Iterable[Path], base_model: Path | str, /, *, leave_out: str = "", **changed: Any) -> Path:
    """Write run.toml into `folder` and return its path; `changed` overrides or adds keys, `leave_out` drops one."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "run_id": "run_1",
        "night": "2026-11-20",
        "lane": "grpo",
        "loss": "grpo",
        "backend": "auto",
        "batches": [str(batch) for batch in batches],
        "base_model": str(base_model),
        "base_model_name": BASE_MODEL,
        "parent_id": "",
        "parent_folder": "",
        "out": "checkpoint",
        "learning_rate": 1e-2,
        "epochs": 2,
        "groups_per_step": 2,
        "clip_low": 0.2,
        "clip_high": 0.2,
        "dual_clip": 3.0,
        "learning_rate_decay": "none",
        "max_clip_fraction": 0.0,
        "loss_mean": "token",
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
        "lora_rank": 4,
        "lora_alpha": 8,
        "seed": 0,
        "shuffle_advantages": False,
        "config_hash": "config_1",
        **changed,
    }
    content.pop(leave_out, None)
    path = folder / "run.toml"
    path.write_text(tomli_w.dumps(content), encoding="utf-8")
    return path
