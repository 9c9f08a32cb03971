"""Reads: landing/quarantine, trajectories/duplicates. Writes: nothing. Next: the reader of `nightshift quarantine`.

Two things are listed: pieces of files that are no records, and records whose bundle the parser could not read.
"""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow.dataset as ds

from pipelines.errors import ConfigError, UnknownReferenceError
from pipelines.reasons import QUARANTINE_REASONS
from pipelines.references import whole_id
from pipelines.schemas import DUPLICATES, QUARANTINE, RECORDS
from pipelines.workspace import Workspace

UNREADABLE = "unreadable"
REASONS = (*QUARANTINE_REASONS, UNREADABLE)
"""Words that the list can be narrowed to."""


def listed(workspace: Workspace, *, reason: str | None = None, num_rows: int = 50) -> list[dict[str, Any]]:
    """The newest pieces in quarantine, without their text; `reason` None: of every reason."""
    if reason is not None and reason not in REASONS:
        raise ConfigError(f"{reason!r} is no reason for quarantine; the reasons are {', '.join(REASONS)}")
    return workspace.queries.run("landing/quarantine", {"reason": reason, "num_rows": num_rows}).to_pylist()


def counts(workspace: Workspace) -> dict[str, int]:
    """Pieces in quarantine by reason, the most frequent first."""
    rows = workspace.queries.run("landing/quarantine_reasons").to_pylist()
    return {row["reason"]: row["num_pieces"] for row in rows}


def show(workspace: Workspace, record_id: str) -> dict[str, Any]:
    """One piece with its redacted text, by its record_id or the beginning of it; UnknownReferenceError where there is none,
    or several begin so."""
    record_id = whole_id(workspace.queries, record_id, "landing/quarantine_named")
    named = ds.field("record_id") == record_id
    rows = workspace.lake.read(QUARANTINE.name, filter=named).to_pylist()
    if not rows:
        failed = workspace.lake.read(DUPLICATES.name, filter=named & (ds.field("kind") == UNREADABLE)).to_pylist()
        found = workspace.lake.read(RECORDS.name, filter=named).to_pylist() if failed else []
        rows = [{**row, "reason": UNREADABLE, "detail": failed[0]["detail"]} for row in found]
    if not rows:
        raise UnknownReferenceError(f"no {record_id} is in quarantine; `nightshift quarantine` lists what is")
    landed_at: datetime.datetime = rows[0]["landed_at"]
    return {**rows[0], "landed_at": landed_at.isoformat()}
