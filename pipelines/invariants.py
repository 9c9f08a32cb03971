"""The invariants that can break in production, each as one question whose answer must be empty.

Asset checks ask them in every night and stop what stands behind; `nightshift doctor` asks them at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.batch_rows import SCHEMA
from pipelines.groups import violations
from pipelines.groups.near_tasks import threshold_units
from pipelines.schemas import CONSUMED
from pipelines.workspace import Workspace
from trainer.contract import ROWS_FILE, BatchManifest

MAX_EXAMPLES = 20
"""Ids that a finding names; the count says how many there are."""


DERIVED = frozenset({"every_record_in_one_place", "one_task_one_context"})
"""Questions about what is derived from records: where one is broken, a replay makes it again."""


@dataclass(frozen=True)
class Finding:
    """The answer to one question: nothing broken is what is hoped for."""

    invariant: str
    """I1, I4, …, as in ARCHITECTURE.md."""
    num_looked_at: int
    num_broken: int
    broken: list[str] = field(default_factory=list)
    """The first ids that break it."""
    counted: dict[str, int] = field(default_factory=dict)
    """What breaks nothing and should be known."""


def every_record_in_one_place(workspace: Workspace) -> Finding:
    """I1: each record is in exactly one of a trajectory's provenance, duplicates, skipped."""
    broken = workspace.queries.run("trajectories/unaccounted").column("record_id").to_pylist()
    return Finding("I1", workspace.lake.num_rows("landing/records"), len(broken), broken[:MAX_EXAMPLES])


def one_task_one_context(workspace: Workspace) -> Finding:
    """I4: a group holds one task under one context and one policy family within the lag; a trajectory is a member once."""
    broken = [f"{row['group_id']}: {row['violation']}" for row in violations(workspace).to_pylist()]
    return Finding("I4", workspace.lake.num_rows("groups/groups"), len(broken), broken[:MAX_EXAMPLES])


def only_sampled_tokens_train(workspace: Workspace) -> Finding:
    """I7: masks fit, and the marked tokens of all rows are the sampled tokens of their trajectories."""
    return _ask_of_batches(workspace, "I7", "only_sampled_tokens_train")


def held_out_stays_out(workspace: Workspace) -> Finding:
    """I8: no task of another split than train, and no evaluation, is in a batch."""
    return _ask_of_batches(workspace, "I8", "held_out_stays_out")


def near_held_out_stays_out(workspace: Workspace) -> Finding:
    """I8: no near-copy of a held-out or audit task is in a batch; `found_late` counts those that trained before it was known."""
    rows = batch_rows(workspace)
    parameters = {"near_threshold": threshold_units(workspace.config.groups)}
    near = workspace.queries.run("invariants/near_held_out_stays_out", parameters, tables={"batch_rows": rows}).to_pylist()
    broken = [row["trajectory_id"] for row in near if row["broken"]]
    late = {"found_late": len(near) - len(broken)}
    return Finding("I8", rows.num_rows, len(broken), broken[:MAX_EXAMPLES], late)


def trained_once(workspace: Workspace) -> Finding:
    """I14: a trajectory is in one batch, and so is each answer, apart from batches that were frozen again on purpose.

    Trajectories are named by their id, answers as `<name>: <groups that trained it>`.
    """
    return _ask_of_batches(workspace, "I14", "trained_once")


ALL = (
    every_record_in_one_place,
    one_task_one_context,
    only_sampled_tokens_train,
    held_out_stays_out,
    near_held_out_stays_out,
    trained_once,
)


def batch_rows(workspace: Workspace) -> pa.Table:
    """Rows of every consumed batch with their batch_id: what the trainer read, or will read."""
    consumed = workspace.lake.read(CONSUMED.name, columns=["batch_id"]).column("batch_id").to_pylist()
    parts = [_rows_of(workspace.batches / batch_id, batch_id) for batch_id in sorted(set(consumed))]
    if not parts:
        return SCHEMA.append(pa.field("batch_id", pa.string())).empty_table()
    return pa.concat_tables(parts)


def _rows_of(folder: Path, batch_id: str) -> pa.Table:
    BatchManifest.read(folder).verify_rows(folder)
    rows = pq.read_table(folder / ROWS_FILE)
    return rows.append_column("batch_id", pa.array([batch_id] * rows.num_rows, pa.string()))


def _ask_of_batches(workspace: Workspace, invariant: str, query: str) -> Finding:
    rows = batch_rows(workspace)
    broken = workspace.queries.run(f"invariants/{query}", tables={"batch_rows": rows}).column("broken").to_pylist()
    return Finding(invariant, rows.num_rows, len(broken), broken[:MAX_EXAMPLES])
