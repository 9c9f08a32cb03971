"""Answers that trained already, whatever trajectory holds them today (I14)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pipelines.doors.lake import Handle
from pipelines.workspace import Workspace


def taken(workspace: Workspace, night: str, *, pinned: Mapping[str, Handle] | None = None) -> pa.Table:
    """Trajectories with an answer that a batch trained: (trajectory_id, group_id it trained in).

    Such a trajectory trains no more as a whole and is sealed no more, unless the group is its own and asked for again.
    Members of groups that were consumed on another night than `night` are left out: their ids say it.
    """
    return workspace.queries.run("groups/taken", {"night": night}, pinned=pinned)
