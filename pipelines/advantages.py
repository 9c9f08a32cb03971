"""Reads: rewards of groups, handed in. Writes: nothing. Next: batches.

Advantages over columns: the sums in SQL and in integers, on top of them the one function of trainer/contract.py, so that
millions of rows get, bit for bit, what `advantages` gives a list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.doors.queries import Queries
from trainer.contract import MIN_SPREAD, standardised


def advantages_of(queries: Queries, rewarded: pa.Table) -> pa.Table:
    """(group_id, trajectory_id, advantage float64), sorted, of the groups among (group_id, trajectory_id, reward int64) with spread.

    LakeError where n * (max - min) of a group comes to 6e9 units of 1e-6: 6,000 members between rewards of 0 and 1.
    """
    return with_advantages(queries.run("batches/sums", {"min_spread": MIN_SPREAD}, tables={"rewarded": rewarded}))


def with_advantages(sums: pa.Table) -> pa.Table:
    """Rows of sql/batches/sums.sql with the advantage in place of what it is made of."""
    centred, scatter = (sums.column(name).to_numpy() for name in ("centred", "scatter"))
    found: Any = standardised(centred, scatter, np.sqrt)
    return sums.select(["group_id", "trajectory_id"]).append_column("advantage", pa.array(found, pa.float64()))
