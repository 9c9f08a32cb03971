"""Sealed groups put straight into the lake, so that later stages are tested without the earlier ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.schemas import GROUPS, SPLITS, TRAJECTORIES
from pipelines.workspace import Workspace

CONFIG = """
[policy]
name = "agent"
base_model = "{model}"
[judge]
groups_per_night = 0
"""


@dataclass(frozen=True)
class Logged:
    """One attempt as it is logged; its calls have exact tokens unless `calls` says otherwise."""

    answer: str
    outcome: float | None = None
    fault: str | None = None
    policy_version: str | None = "agent@0"
    calls: Sequence[dict[str, Any]] | None = None
    num_sampled_tokens: int | None = None
    role: str = "member"
    turns: Sequence[dict[str, Any]] | None = None
    day: str = "2026-11-20"


def call(prompt: Sequence[int] = (1, 2, 3), sampled: Sequence[int] = (4, 5), logprobs: Sequence[float] = (-0.5, -0.25)) -> dict:
    return {
        "prompt_token_ids": list(prompt),
        "token_ids": list(sampled),
        "logprobs": list(logprobs),
        "finish_reason": "stop",
    }


def fake_model(folder: Path) -> Path:
    """What the pipelines read of a base model: a folder with a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    return folder


def seal_groups(
    workspace: Workspace, tasks: dict[str, Sequence[Logged]], *, splits: dict[str, str] | None = None, night: str = "2026-11-20"
) -> dict[str, list[str]]:
    """Write trajectories, splits and one sealed group per task; returns trajectory ids by task, in the order given."""
    ids: dict[str, list[str]] = {}
    trajectories, groups = [], []
    for task_id, attempts in tasks.items():
        task_key = workspace.identity.task_key("desk", task_id)
        context_key = workspace.identity.context_key()
        ids[task_id] = [workspace.identity.of("trajectory", task_id, str(number)) for number in range(len(attempts))]
        group_id = workspace.identity.group_id(task_key, context_key, ids[task_id])
        for number, (trajectory_id, attempt) in enumerate(zip(ids[task_id], attempts, strict=True)):
            turns = attempt.turns or [
                {"role": "user", "content": f"do {task_id}", "sampled": False},
                {"role": "assistant", "content": attempt.answer, "sampled": True, "call": 0},
            ]
            calls = [call()] if attempt.calls is None else list(attempt.calls)
            sampled = attempt.num_sampled_tokens
            if sampled is None:
                sampled = sum(len(entry["token_ids"] or ()) for entry in calls)
            content_id = workspace.identity.of("content", json.dumps(turns))
            policy_family = "agent" if attempt.policy_version else "unknown"
            trajectories.append(
                {
                    "trajectory_id": trajectory_id,
                    "day": attempt.day,
                    "format": "recorder",
                    "harness": "desk",
                    "task_id": task_id,
                    "task_key": task_key,
                    "context_key": context_key,
                    "content_id": content_id,
                    "attempt": number,
                    "purpose": "production",
                    "policy_family": policy_family,
                    "policy_version": attempt.policy_version,
                    "model": "toy",
                    "turns": json.dumps(turns),
                    "calls": json.dumps(calls),
                    "num_turns": len(turns),
                    "num_sampled_turns": len(calls),
                    "num_sampled_tokens": sampled,
                    "exact_tokens": all(entry["token_ids"] is not None for entry in calls),
                    "outcome": None if attempt.outcome is None else round(attempt.outcome * 1e6),
                    "fault": attempt.fault,
                    "record_ids": [workspace.identity.of("record", task_id, str(number))],
                }
            )
            groups.append(
                {
                    "group_id": group_id,
                    "trajectory_id": trajectory_id,
                    "task_key": task_key,
                    "context_key": context_key,
                    "policy_family": policy_family,
                    "policy_version": attempt.policy_version,
                    "content_id": content_id,
                    "outcome": None if attempt.outcome is None else round(attempt.outcome * 1e6),
                    "window": "2026-11-19",
                    "day": attempt.day,
                    "role": attempt.role,
                    "seal_reason": "judged",
                    "sealed_night": night,
                }
            )
    split_rows = [
        {
            "task_key": workspace.identity.task_key("desk", task_id),
            "split": (splits or {}).get(task_id, "train"),
            "source": "drawn",
            "day": night,
        }
        for task_id in tasks
    ]
    for spec, rows in ((TRAJECTORIES, trajectories), (SPLITS, split_rows), (GROUPS, groups)):
        workspace.lake.append(spec.name, pa.Table.from_pylist(rows, schema=spec.schema))
    return ids
