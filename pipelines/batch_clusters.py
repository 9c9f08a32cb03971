"""Stage 5: of one task and its near-copies a night takes so many groups and no more; the others wait, unconsumed.

What a night took counts against its cap, so that a night that is killed and run again, or run twice, takes no more than one
that was run once. The cap holds for each lane, whose batches are of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines.doors.queries import Only
from pipelines.groups.near_tasks import clusters
from pipelines.workspace import Workspace

_CLUSTERS = pa.schema([("task_key", pa.string()), ("cluster", pa.string())])


@dataclass(frozen=True)
class Contenders:
    """The groups that could train in a lane tonight, or do, with the cluster of each."""

    rows: list[dict[str, Any]]
    """Of sql/batches/contenders.sql, in the order in which a cluster's groups are taken."""
    cap: int | None

    def taken(self, sound: Iterable[str]) -> set[str]:
        """Of the groups that hold members that can train and that no batch consumed, those that the night takes now."""
        sound = set(sound)
        if self.cap is None:
            return sound
        room: dict[str, int] = {}
        taken: set[str] = set()
        for row in self.rows:
            left = room.setdefault(row["cluster"], self.cap - row["num_taken"])
            if row["group_id"] in sound and left > 0:
                taken.add(row["group_id"])
                room[row["cluster"]] = left - 1
        return taken

    def full(self, waiting: Iterable[str], night: str, lane: str) -> list[dict[str, Any]]:
        """Rows of batches/clusters: of the clusters of which groups are `waiting`, what the night took and what it left."""
        waiting, left = set(waiting), Counter[str]()
        tasks: dict[str, set[str]] = defaultdict(set)
        took: Mapping[str, int] = {row["cluster"]: row["num_taken"] for row in self.rows}
        for row in self.rows:
            tasks[row["cluster"]].add(row["task_key"])
            left[row["cluster"]] += row["group_id"] in waiting
        return [
            {
                "night": night,
                "lane": lane,
                "task_key": task_key,
                "cluster": cluster,
                "num_tasks": len(tasks[cluster]),
                "num_groups": took[cluster],
                "num_waiting": number,
            }
            for cluster, number in sorted(left.items())
            if number
            for task_key in sorted(tasks[cluster])
        ]


def contenders(workspace: Workspace, parameters: Mapping[str, Any], eligible: pa.Table, only: Only) -> Contenders:
    """Who contends for a place in the batch of a lane; `parameters` as for sql/batches/candidates.sql, `only`: of which windows."""
    cap = workspace.config.groups.cap_per_cluster
    if cap is None:
        return Contenders([], None)
    alone = {"eligible": eligible, "clusters": _CLUSTERS.empty_table()}
    rows = workspace.queries.run("batches/contenders", parameters, tables=alone, only=only)
    if rows.num_rows <= cap:  # whatever is a near-copy of what, there is room for all
        return Contenders(rows.to_pylist(), cap)
    tables = {"eligible": eligible, "clusters": clusters(workspace, rows.column("task_key").to_pylist())}
    return Contenders(workspace.queries.run("batches/contenders", parameters, tables=tables, only=only).to_pylist(), cap)
