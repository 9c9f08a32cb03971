"""Answers that trained already, whatever trajectory holds them today (I14)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipelines.doors.lake import Handle
from pipelines.doors.queries import Only
from pipelines.schemas import CONSUMED
from pipelines.workspace import Workspace


def taken(workspace: Workspace, night: str, *, pinned: Mapping[str, Handle] | None = None, only: Only | None = None) -> pa.Table:
    """Trajectories with an answer that a batch trained: (trajectory_id, group_id it trained in).

    Such a trajectory trains no more as a whole and is sealed no more, unless the group is its own and asked for again.
    Members of groups that were consumed on another night than `night` are left out: their ids say it. `only`: of which windows
    trajectories are asked about; they are held against everything that trained, wherever that lies.
    """
    unnamed = workspace.queries.run("groups/unnamed").column("num_groups")[0].as_py()
    # what an older nightshift consumed is known by its members alone, which may lie anywhere
    only = {} if unnamed else {name: kept for name, kept in (only or {}).items() if name != CONSUMED.name}
    return workspace.queries.run("groups/taken", {"night": night}, pinned=pinned, only=only)
