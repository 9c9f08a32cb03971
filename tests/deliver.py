"""Recorder lines for tests, and their delivery into landing/records in any order and in any number of files."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipelines.landing.format import SourceRecord
from pipelines.landing.recorder import Recorder
from pipelines.schemas import RECORDS
from pipelines.workspace import Workspace

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
POLICY = "nightshift-agent@0"


def call(attempt: str, *, task: str = "1", number: int = 0, day: int = 0, text: str = "4", **changes: Any) -> dict[str, Any]:
    """One call of an attempt, `day` days after 2026-11-20 and `number` minutes after noon, with exact tokens."""
    started = NOON + datetime.timedelta(days=day, minutes=number)
    line: dict[str, Any] = {
        "recorder": 1,
        "kind": "call",
        "call_id": f"{attempt}/{number}",
        "attempt_id": attempt,
        "harness": "sums",
        "task_id": task,
        "attempt": 0,
        "purpose": "production",
        "policy_version": POLICY,
        "model": "toy",
        "request": {
            "messages": [{"role": "system", "content": "Add."}, {"role": "user", "content": f"task {task}"}],
            "tools": None,
            "sampling": {"temperature": 1.0},
        },
        "response": {"message": {"role": "assistant", "content": text, "tool_calls": None}, "finish_reason": "stop"},
        "prompt_token_ids": [1, 2, 3],
        "token_ids": [4, 5],
        "logprobs": [-0.5, -0.25],
        "started_at": started.isoformat(),
        "ended_at": (started + datetime.timedelta(seconds=1)).isoformat(),
        "outcome": None,
        "fault": None,
    }
    return {**line, **changes}


def deliver(workspace: Workspace, lines: Sequence[dict[str, Any]], source: str = "logs/calls.jsonl") -> None:
    """Write a log file and take it in: one record per call, those that are known already left out."""
    path = workspace.folder / source
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    rows = []
    for piece in Recorder().split(path):
        assert isinstance(piece, SourceRecord)
        assert piece.vendor_id is not None and piece.bundle_ref is not None and piece.time is not None
        rows.append(
            {
                "record_id": workspace.identity.of("record", "recorder", piece.vendor_id),
                "content_id": workspace.identity.of("content", piece.content),
                "bundle_key": workspace.identity.of("bundle", "recorder", piece.bundle_ref),
                "day": piece.time.date().isoformat(),
                "format": "recorder",
                "parser_version": 1,
                "raw": piece.content.decode(),
                "source": source,
                "line": piece.line,
                "byte_start": piece.byte_start,
                "byte_end": piece.byte_end,
                "landed_at": NOON,
            }
        )
    unique = {row["record_id"]: row for row in rows}
    workspace.lake.append_missing(RECORDS.name, pa.Table.from_pylist(list(unique.values()), schema=RECORDS.schema))


def rows_of(workspace: Workspace, table: str) -> list[dict[str, Any]]:
    """All rows of a table in a total order, without what only says when and where they were delivered."""
    from pipelines.schemas import TABLES

    spec = TABLES[table]
    kept = [name for name in spec.schema.names if name not in spec.landing_columns]
    rows = workspace.lake.read(table, columns=kept)
    return rows.sort_by([(name, "ascending") for name in spec.key]).to_pylist()
