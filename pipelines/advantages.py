"""Reads: rewards of groups, handed in. Writes: nothing. Next: batches.

Advantages over columns: the sums in SQL and in integers, on top of them the one function of trainer/contract.py, so that
millions of rows get, bit for bit, what `advantages` gives a list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from pipelines.doors.queries import Queries
from trainer.contract import MIN_SPREAD, standardised

pc: Any = pyarrow.compute
"""Its functions are made when it is imported, so no checker knows them."""


def advantages_of(queries: Queries, rewarded: pa.Table) -> pa.Table:
    """(group_id, trajectory_id, advantage float64), sorted, of the groups among (group_id, trajectory_id, reward int64) with spread.

    LakeError where n * (max - min) of a group comes to 6e9 units of 1e-6: 6,000 members between rewards of 0 and 1.
    """
    return with_advantages(queries.run("batches/sums", {"min_spread": MIN_SPREAD}, tables={"rewarded": rewarded}))


def with_advantages(sums: pa.Table) -> pa.Table:
    """One row for each member of the groups of sql/batches/sums.sql: (group_id, trajectory_id, advantage)."""
    sums = sums.combine_chunks()
    members, rewards = _members(sums)
    sizes = pc.list_value_length(sums.column("members")).to_numpy().astype(np.int64)
    total, scatter = (sums.column(name).to_numpy() for name in ("total", "scatter"))
    # of integers modulo 2^64, so that a product may leave 64 bits: the difference is at most n * (max - min)
    centred = np.repeat(sizes, sizes) * rewards - np.repeat(total, sizes)
    found: Any = standardised(centred, np.repeat(scatter, sizes), np.sqrt)
    groups = sums.column("group_id").take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))
    return pa.table({"group_id": groups, "trajectory_id": members, "advantage": pa.array(found, pa.float64())})


def _members(sums: pa.Table) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Ids and rewards of the members of all groups, one after the other."""
    flat = pa.table({"member": pc.list_flatten(sums.column("members"))}).flatten().combine_chunks()
    return flat.column("member.trajectory_id"), flat.column("member.reward").to_numpy()
