"""Reads: landing/records. Writes: trajectories/trajectories, trajectories/duplicates. Next: groups.

Stage 2: the records of each attempt become one row in uniform words, whatever format they were logged in. Whole days are
rebuilt from the records, so that a mended parser or a late record changes what it should and nothing else. Every record
that belongs to an attempt ends in exactly one place (I1): what is in none, or in two, is what the next build works on, so
a build that was killed between its two tables heals by running again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipelines.config import SourceConfig
from pipelines.doors.lake import Handle, Snapshot
from pipelines.errors import LakeError
from pipelines.ids import canonical_json
from pipelines.landing import registry
from pipelines.landing.format import Attempt, StoredRecord
from pipelines.landing.sources import settings_of
from pipelines.reports import Built
from pipelines.schemas import DUPLICATES, RECORDS, TRAJECTORIES
from pipelines.workspace import Workspace

UNKNOWN_POLICY = "unknown"
"""policy_family of attempts whose log names no model."""


def build(workspace: Workspace, days: Sequence[str] | None = None) -> Built:
    """Rebuild the trajectories of every stale day, and of `days` (YYYY-MM-DD) besides.

    A day is stale where a record of one of its attempts is in no trajectory and no duplicate, or in more than one.
    LakeError where a stored record cannot be read any more.
    """
    unaccounted = workspace.queries.run("trajectories/unaccounted")
    stale = workspace.queries.run("trajectories/stale_days", tables={"unaccounted": unaccounted})
    touched = sorted({*stale.column("day").to_pylist(), *(days or ())})
    if not touched:
        return Built(
            days=[], trajectories=0, duplicates=0, faults=0, why_nothing="every record that landed is in a trajectory already"
        )
    rebuilt = _Rebuilt(workspace, touched)
    trajectories = workspace.lake.replace_computed(TRAJECTORIES.name, touched, rebuilt.trajectories)
    duplicates = workspace.lake.replace_computed(DUPLICATES.name, touched, rebuilt.duplicates)
    return Built(
        days=touched,
        trajectories=trajectories.num_rows,
        duplicates=duplicates.num_rows,
        faults=rebuilt.num_faults,
        versions={TRAJECTORIES.name: trajectories.version, DUPLICATES.name: duplicates.version},
    )


class _Rebuilt:
    """The rows of some days, made again only where the records have changed since."""

    def __init__(self, workspace: Workspace, days: list[str]) -> None:
        self.workspace, self.days = workspace, days
        self._version: int | None = None
        self._rows: list[dict[str, Any]] = []
        self._duplicates: list[dict[str, Any]] = []

    @property
    def num_faults(self) -> int:
        return sum(1 for row in self._rows if row["fault"] is not None)

    def trajectories(self, snapshot: Snapshot) -> pa.Table:
        """What trajectories/trajectories holds for these days. Called after the table was opened, so a lost race sees newer records."""
        self._refresh()
        return pa.Table.from_pylist(self._rows, schema=TRAJECTORIES.schema)

    def duplicates(self, snapshot: Snapshot) -> pa.Table:
        """What trajectories/duplicates holds for these days."""
        self._refresh()
        return pa.Table.from_pylist(self._duplicates, schema=DUPLICATES.schema)

    def _refresh(self) -> None:
        handle = self.workspace.lake.handle(RECORDS.name)
        if handle is None or handle.version() == self._version:
            return
        self._rows, self._duplicates = _rows_of(self.workspace, self.days, {RECORDS.name: handle})
        self._version = handle.version()


def _rows_of(
    workspace: Workspace, days: list[str], pinned: Mapping[str, Handle]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of trajectories and of duplicates, each sorted by id."""
    asked = pa.table({"day": pa.array(days, pa.string())})
    records = workspace.queries.run("trajectories/attempts", tables={"asked": asked}, pinned=pinned)
    settings: dict[str, SourceConfig | None] = {}
    rows: list[dict[str, Any]] = []
    duplicates: list[dict[str, Any]] = []
    one_by_one = (row for batch in records.to_batches(max_chunksize=10_000) for row in batch.to_pylist())
    for attempt_key, of_attempt in itertools.groupby(one_by_one, key=lambda row: row["attempt_key"]):
        given = list(of_attempt)
        standing = [record for record in given if record["record_id"] == record["stands"]]
        source = min(record["source"] for record in given)
        if source not in settings:
            settings[source] = settings_of(workspace, source)
        row = _row(workspace, attempt_key, standing, settings[source])
        rows.append(row)
        provenance = set(row["record_ids"])
        duplicates.extend(
            {
                "record_id": record["record_id"],
                "trajectory_id": row["trajectory_id"],
                "kind": "exact",
                "similarity": 1.0,
                "day": row["day"],
            }
            for record in given
            if record["record_id"] not in provenance
        )
    rows.sort(key=lambda row: row["trajectory_id"])
    duplicates.sort(key=lambda row: row["record_id"])
    return rows, duplicates


def _row(workspace: Workspace, attempt_key: str, records: list[dict[str, Any]], source: SourceConfig | None) -> dict[str, Any]:
    """One row of trajectories; `source` is the configured source that the attempt's log lies in, None where none is."""
    first = records[0]
    attempt = _attempt(first["format"], records)
    identity = workspace.identity
    harness = (source.harness if source else None) or attempt.harness or first["format"]
    policy_version = attempt.policy_version
    if policy_version is None and source is not None and attempt.model is not None:
        policy_version = source.policies.get(attempt.model)
    return {
        "trajectory_id": identity.of("trajectory", attempt_key),
        "day": first["day"],
        "format": first["format"],
        "harness": harness,
        "task_id": attempt.task_id,
        "task_key": identity.task_key(harness, attempt.task_id, attempt.request),
        "context_key": identity.context_key(attempt.system, attempt.tools, attempt.snapshot),
        "content_id": identity.of("content", canonical_json(said(attempt.turns))),
        "attempt": attempt.attempt,
        "purpose": attempt.purpose,
        "policy_family": family_of(policy_version, attempt.model),
        "policy_version": policy_version,
        "model": attempt.model,
        "turns": canonical_json(attempt.turns).decode(),
        "calls": canonical_json(attempt.calls).decode(),
        "tools": None if attempt.tools is None else canonical_json(attempt.tools).decode(),
        "num_turns": len(attempt.turns),
        "num_sampled_turns": attempt.num_sampled_turns,
        "num_sampled_tokens": attempt.num_sampled_tokens,
        "exact_tokens": attempt.exact_tokens,
        "outcome": attempt.outcome_units,
        "outcome_source": attempt.outcome_source,
        "fault": attempt.fault,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "record_ids": attempt.record_ids,
    }


def _attempt(format_name: str, records: list[dict[str, Any]]) -> Attempt:
    stored = [StoredRecord(record_id=record["record_id"], raw=record["raw"]) for record in records]
    try:
        return registry.by_name(format_name).attempt(stored)
    except ValueError as problem:
        first = stored[0].record_id
        raise LakeError(
            f"the attempt of record {first} ({records[0]['source']}) cannot be read as {format_name}: {problem}; "
            "restore landing/records from a backup, or upgrade to the nightshift that landed it",
            record_id=first,
        ) from problem


def family_of(policy_version: str | None, model: str | None) -> str:
    """The policy's name without its version, else the model's name, else `unknown`."""
    if policy_version is not None:
        return policy_version.partition("@")[0]
    return model or UNKNOWN_POLICY


def said(turns: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The turns without what differs between equal attempts: ids of tool calls become their number, counters fall away."""
    numbers: dict[str, int] = {}

    def number(call_id: Any) -> int | None:
        return None if call_id is None else numbers.setdefault(str(call_id), len(numbers))

    return [
        [
            turn["role"],
            turn.get("content"),
            turn.get("reasoning"),
            [[number(call.get("id")), call.get("function")] for call in turn.get("tool_calls") or ()],
            number(turn.get("tool_call_id")),
            turn.get("name"),
            turn["sampled"],
        ]
        for turn in turns
    ]
