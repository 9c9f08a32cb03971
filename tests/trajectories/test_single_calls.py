"""Logged calls become attempts across files and deliveries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.landing.land import land
from pipelines.trajectories import build
from tests.conftest import make_workspace
from tests.landing.formats.chat_lines import conversation
from tests.landing.formats.test_openai_stream import stream
from tests.landing.lines import write_lines

COLUMNS = ["trajectory_id", "day", "task_key", "context_key", "turns", "calls", "num_gaps", "record_ids", "link"]


def delivered(folder: Path, deliveries: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Trajectories after each delivery was landed and built, one file each."""
    workspace = make_workspace(folder)
    for number, calls in enumerate(deliveries):
        land(workspace, [write_lines(folder / "logs" / f"{number}.jsonl", calls)])
        build(workspace)
    rows = workspace.lake.read("trajectories/trajectories", COLUMNS).to_pylist()
    return sorted(rows, key=lambda row: row["trajectory_id"])


def test_calls_that_arrive_late_and_twice_complete_their_attempt(tmp_path: Path) -> None:
    calls = conversation("a", "b", "c")
    for number, call in enumerate(calls):
        call["response"]["created"] += 86_400 * number
    whole = delivered(tmp_path / "whole", [calls])
    (row,) = whole
    assert len(row["record_ids"]) == 3 and row["num_gaps"] == 0
    mixed = delivered(tmp_path / "mixed", [[calls[2]], [calls[0], calls[2]], [calls[1]], calls])
    assert mixed == whole


def test_answers_whose_requests_were_not_logged_are_no_siblings(tmp_path: Path) -> None:
    found = delivered(tmp_path / "workspace", [stream("1"), stream("2")])
    assert len({row["task_key"] for row in found}) == 2
