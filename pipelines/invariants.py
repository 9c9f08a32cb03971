"""The invariants that can break in production, each as one question whose answer must be empty.

Asset checks ask them in every night and stop what stands behind, of batches only about those that no checkpoint was trained
on yet (`pending`), so that a night does not read all that ever trained; `nightshift doctor` asks about everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.batch_rows import SCHEMA
from pipelines.doors.queries import Only
from pipelines.groups import violations
from pipelines.groups.near_tasks import threshold_units
from pipelines.groups.night_windows import NightWindows, night_windows
from pipelines.schemas import CONSUMED
from pipelines.workspace import Workspace
from trainer.contract import ROWS_FILE, BatchManifest

_ANY_NIGHT = "9999-12-31"
"""What no night has sorted yet."""
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


def one_task_one_context(workspace: Workspace, *, pending: bool = False) -> Finding:
    """I4: a group holds one task under one context and one policy family within the lag; a trajectory is a member once.

    `pending`: only the windows that a night looks at now.
    """
    only = night_windows(workspace, _ANY_NIGHT).only if pending else None
    broken = [f"{row['group_id']}: {row['violation']}" for row in violations(workspace, only=only).to_pylist()]
    return Finding("I4", workspace.lake.num_rows("groups/groups"), len(broken), broken[:MAX_EXAMPLES])


def only_sampled_tokens_train(workspace: Workspace, *, pending: bool = False) -> Finding:
    """I7: masks fit, and the marked tokens of all rows are the sampled tokens of their trajectories."""
    return _ask_of_batches(workspace, "I7", "only_sampled_tokens_train", pending)


def held_out_stays_out(workspace: Workspace, *, pending: bool = False) -> Finding:
    """I8: no task of another split than train, and no evaluation, is in a batch."""
    return _ask_of_batches(workspace, "I8", "held_out_stays_out", pending)


def near_held_out_stays_out(workspace: Workspace, *, pending: bool = False) -> Finding:
    """I8: no near-copy of a held-out or audit task is in a batch; `found_late` counts those that trained before it was known."""
    rows = batch_rows(workspace, _batches(workspace, pending))
    parameters = {"near_threshold": threshold_units(workspace.config.groups)}
    only = _only(workspace, pending)
    near = workspace.queries.run(
        "invariants/near_held_out_stays_out", parameters, tables={"batch_rows": rows}, only=only
    ).to_pylist()
    broken = [row["trajectory_id"] for row in near if row["broken"]]
    late = {"found_late": len(near) - len(broken)}
    return Finding("I8", rows.num_rows, len(broken), broken[:MAX_EXAMPLES], late)


def trained_once(workspace: Workspace, *, pending: bool = False) -> Finding:
    """I14: a trajectory is in one batch, and so is each answer, apart from batches that were frozen again on purpose.

    Trajectories are named by their id, answers as `<name>: <groups that trained it>`. Of pending batches, answers are held
    against all that ever trained.
    """
    return _ask_of_batches(workspace, "I14", "trained_once", pending)


ALL = (
    every_record_in_one_place,
    one_task_one_context,
    only_sampled_tokens_train,
    held_out_stays_out,
    near_held_out_stays_out,
    trained_once,
)


def ask_tonight(workspace: Workspace, ask: Callable[..., Finding]) -> Finding:
    """One of ALL as a night asks it."""
    return ask(workspace) if ask is every_record_in_one_place else ask(workspace, pending=True)


def batch_rows(workspace: Workspace, batch_ids: Sequence[str]) -> pa.Table:
    """Rows of some consumed batches with their batch_id: what the trainer read, or will read."""
    parts = [_rows_of(workspace.batches / batch_id, batch_id) for batch_id in batch_ids]
    if not parts:
        return SCHEMA.append(pa.field("batch_id", pa.string())).empty_table()
    return pa.concat_tables(parts)


def _batches(workspace: Workspace, pending: bool) -> list[str]:
    if pending:
        found = workspace.queries.run("batches/pending").column("batch_id")
    else:
        found = workspace.lake.read(CONSUMED.name, columns=["batch_id"]).column("batch_id")
    return sorted(found.unique().to_pylist())


def _rows_of(folder: Path, batch_id: str) -> pa.Table:
    BatchManifest.read(folder).verify_rows(folder)
    rows = pq.read_table(folder / ROWS_FILE)
    return rows.append_column("batch_id", pa.array([batch_id] * rows.num_rows, pa.string()))


def _only(workspace: Workspace, pending: bool) -> Only:
    """The attempts and groups of the windows whose groups the pending batches consumed."""
    if not pending:
        return {}
    windows: list[str | None] = workspace.queries.run("batches/pending_windows").column("window").to_pylist()
    if None in windows:  # of an older nightshift, which kept no windows
        return {}
    looked_at = NightWindows(frozenset(filter(None, windows)), workspace.config.groups.window_days)
    return {name: kept for name, kept in looked_at.only.items() if name != CONSUMED.name}


def _ask_of_batches(workspace: Workspace, invariant: str, query: str, pending: bool) -> Finding:
    batch_ids = _batches(workspace, pending)
    rows = batch_rows(workspace, batch_ids)
    tables = {"batch_rows": rows, "asked": pa.table({"batch_id": pa.array(batch_ids, pa.string())})}
    only = _only(workspace, pending)
    broken = workspace.queries.run(f"invariants/{query}", tables=tables, only=only).column("broken").to_pylist()
    return Finding(invariant, rows.num_rows, len(broken), broken[:MAX_EXAMPLES])
