"""Rows and folders as earlier stages leave them, for tests that begin in the middle of a night."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from pipelines import evaluation, training
from pipelines.schemas import CHECKPOINTS, CONSUMED, EVALUATION
from pipelines.workspace import Workspace
from trainer.contract import CheckpointManifest, sha256_of

NIGHT = "2026-11-20"
RUBRIC = "rubric-1"


def freeze(
    workspace: Workspace, batch_id: str, *, night: str = NIGHT, groups: Sequence[str] = ("grp_1",), again: bool = False
) -> None:
    """A batch as the batches stage records it (its rows are the trainer's business)."""
    rows = [
        {"group_id": group, "rubric_hash": RUBRIC, "batch_id": batch_id, "lane": "grpo", "again": again, "night": night}
        for group in groups
    ]
    workspace.lake.append_missing(CONSUMED.name, pa.Table.from_pylist(rows, schema=CONSUMED.schema))


def write_checkpoint(
    folder: Path, run_id: str, batches: Sequence[str], *, parent: str | None = None, content: str = "weights"
) -> str:
    """A finished checkpoint folder; returns its checkpoint_id."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("adapter_model.safetensors", content), ("adapter_config.json", "{}"), ("optimizer.safetensors", "state")):
        (folder / name).write_text(text)
    metrics = [{"step": step, "num_steps": 2, "loss": 1.0 / step, "clip_fraction": 0.1, "seconds": 0.5} for step in (1, 2)]
    (folder.parent / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    checkpoint_id = f"ckp_{run_id[4:]}"
    CheckpointManifest(
        checkpoint_id=checkpoint_id,
        run_id=run_id,
        parent=parent,
        batches=sorted(batches),
        lane="grpo",
        loss="grpo",
        backend="peft",
        base_model="toy",
        tokenizer_hash="tok",
        seed=0,
        num_steps=2,
        num_trained_tokens=10,
        metrics={"loss": 0.75},
        config_hash="cfg",
        files={path.name: sha256_of(path) for path in folder.iterdir()},
    ).write(folder)
    return checkpoint_id


def train(workspace: Workspace, night: str = NIGHT) -> str:
    """What the trainer leaves for the night's plan, without the trainer; returns the checkpoint_id."""
    plan = training.plan(workspace, night)
    assert plan.run_id is not None and plan.checkpoint is not None
    return write_checkpoint(plan.checkpoint, plan.run_id, plan.batch_ids)


def checkpoint_row(
    workspace: Workspace,
    checkpoint_id: str,
    version: int,
    *,
    night: str = NIGHT,
    batches: Sequence[str] = (),
    parent: str | None = None,
    marks: Sequence[str] = (),
) -> None:
    """A registered checkpoint as the checkpoints stage records it."""
    row = {name: None for name in CHECKPOINTS.schema.names} | {
        "checkpoint_id": checkpoint_id,
        "policy": workspace.config.policy.name,
        "version": version,
        "parent": parent,
        "run_id": f"run_{checkpoint_id}",
        "batches": list(batches),
        "night": night,
        "path": f"runs/run_{checkpoint_id}/checkpoint",
        "marks": list(marks),
    }
    workspace.lake.append_missing(CHECKPOINTS.name, pa.Table.from_pylist([row], schema=CHECKPOINTS.schema))


def answers(workspace: Workspace, checkpoint_id: str, passes: Mapping[str, Sequence[bool | None]], *, night: str = NIGHT) -> None:
    """Stored answers to the workspace's held-out tasks: by task_id one pass per attempt, None where it failed."""
    asked = evaluation.load_set(workspace, evaluation.HELD_OUT)
    assert asked is not None
    key_of = {str(task["task_id"]): key for key, task in asked.tasks.items()}
    rows = [
        {
            "checkpoint_id": checkpoint_id,
            "eval_set": asked.name,
            "eval_set_hash": asked.set_hash,
            "task_key": key_of[task_id],
            "task_id": task_id,
            "attempt": attempt,
            "score": None if passed is None else int(passed) * 1_000_000,
            "passed": passed,
            "reason": "fault: timeout" if passed is None else None,
            "num_sampled_tokens": 3,
            "seconds": 0.1,
            "attempt_id": f"att_{checkpoint_id}_{task_id}_{attempt}",
            "night": night,
        }
        for task_id, attempts in passes.items()
        for attempt, passed in enumerate(attempts, start=1)
    ]
    workspace.lake.append_missing(EVALUATION.name, pa.Table.from_pylist(rows, schema=EVALUATION.schema))


def write_held_out(folder: Path, num_tasks: int, name: str = "held_out.jsonl") -> list[str]:
    """A file of held-out tasks; returns their ids."""
    folder.mkdir(parents=True, exist_ok=True)
    task_ids = [f"task-{number:03d}" for number in range(num_tasks)]
    (folder / name).write_text("".join(json.dumps({"task_id": task_id}) + "\n" for task_id in task_ids))
    return task_ids


def day_after(night: str, num_days: int) -> str:
    return (datetime.date.fromisoformat(night) + datetime.timedelta(days=num_days)).isoformat()
