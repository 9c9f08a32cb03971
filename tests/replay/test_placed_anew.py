"""Where a record belongs is read off it again: its bundle, its day, whether it is part of an attempt at all."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines import doctor, groups, trajectories
from pipelines.landing import placed_anew
from pipelines.landing.format import Piece, SourceRecord
from pipelines.landing.land import land
from pipelines.landing.recorder import Recorder
from pipelines.replay import replay
from pipelines.schemas import DUPLICATES, RECORDS, STALE, TRAJECTORIES
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call, rows_of
from tests.landing.lines import write_lines
from tests.replay.test_replay import use

ROOT = Path(__file__).resolve().parents[2]


class Naive(Recorder):
    """A recorder parser of yesterday: takes every call for an attempt of its own, knows no times and skips task 3."""

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        for piece in super().split(path, start, line):
            if isinstance(piece, SourceRecord):
                task = piece.value["task_id"]
                piece = dataclasses.replace(
                    SourceRecord(**{field.name: getattr(piece, field.name) for field in dataclasses.fields(SourceRecord)}),
                    bundle_ref=piece.vendor_id if task == "1" else piece.bundle_ref,
                    time=None if task == "2" else piece.time,
                    skip_reason="meta" if task == "3" else None,
                )
            yield piece


class Today(Recorder):
    """The recorder's own parser, under the next number."""

    parser_version = Recorder.parser_version + 1


class Stricter(Today):
    """One that has learned that calls of task 4 belong to no attempt."""

    parser_version = Recorder.parser_version + 2

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        for piece in super().split(path, start, line):
            if isinstance(piece, SourceRecord) and piece.value["task_id"] == "4":
                fields = {field.name: getattr(piece, field.name) for field in dataclasses.fields(SourceRecord)}
                piece = SourceRecord(**{**fields, "skip_reason": "judge_call"})
            yield piece


def two_calls(attempt: str, task: str, day: int, said: str = "4") -> list[dict[str, Any]]:
    first = call(attempt, task=task, day=day, text=said)
    messages = [*first["request"]["messages"], first["response"]["message"], {"role": "user", "content": "and now?"}]
    return [first, call(attempt, task=task, day=day, number=1, request={"messages": messages, "tools": None})]


LINES = [line for task in "1234" for number in range(3) for line in two_calls(f"{task}/{number}", task, int(task))]


def take_in(workspace: Workspace, lines: list[dict[str, Any]] | None = None) -> Path:
    path = write_lines(workspace.folder / "logs" / "log.jsonl", lines or LINES)
    land(workspace, [path], day="2026-11-30")
    trajectories.build(workspace)
    return path


def same_as_fresh(workspace: Workspace, fresh: Workspace) -> None:
    for table in (RECORDS.name, TRAJECTORIES.name, DUPLICATES.name):
        assert rows_of(workspace, table) == rows_of(fresh, table), table
    assert not [finding for finding in doctor.check(workspace) if finding.check in ("places", "doubled") and not finding.ok]


@pytest.mark.parametrize("log_is_gone", [False, True])
def test_bundles_days_and_skipped_records_are_derived_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, log_is_gone: bool
) -> None:
    use(monkeypatch, Naive())
    path = take_in(workspace)
    assert workspace.lake.num_rows(TRAJECTORIES.name) == 6 + 3 + 3
    groups.assign_splits(workspace, "2026-11-30")
    groups.seal(workspace, "2026-12-30", judged=True)
    if log_is_gone:
        path.unlink()
    use(monkeypatch, Today())
    before = doctor.digest(workspace)
    shown = replay(workspace)
    assert doctor.digest(workspace) == before
    # task 1: six attempts become three; task 2: another day; task 3: three attempts that were skipped
    assert shown.placed == {"bundle_key": 6, "day": 6, "skip_reason": 6}
    assert (shown.added, shown.changed, shown.removed, shown.unchanged) == (6, 3, 6, 3)
    assert len(shown.stale_groups) >= 2 and shown.unplaced == {}
    done = replay(workspace, apply=True)
    assert {**vars(done), "applied": False, "versions": {}} == {**vars(shown), "versions": {}}
    assert {row["group_id"] for row in rows_of(workspace, STALE.name)} == set(shown.stale_groups)
    fresh = make_workspace(workspace.folder.parent / "fresh")
    take_in(fresh)
    same_as_fresh(workspace, fresh)
    assert replay(workspace).why_nothing == "every trajectory was made by the parser in force"
    assert land(workspace, [write_lines(workspace.folder / "logs" / "log.jsonl", LINES)]).records == 0


def test_a_record_that_is_part_of_no_attempt_any_more_leaves_it(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Today())
    take_in(workspace)
    use(monkeypatch, Stricter())
    shown = replay(workspace)
    assert (shown.placed, shown.removed, shown.changed, shown.unchanged) == ({"skip_reason": 6}, 3, 0, 9)
    replay(workspace, apply=True)
    assert {row["task_id"] for row in rows_of(workspace, TRAJECTORIES.name)} == {"1", "2", "3"}
    fresh = make_workspace(workspace.folder.parent / "fresh")
    take_in(fresh)
    same_as_fresh(workspace, fresh)


class ByTask(Today):
    """Takes all calls of one task for one bundle."""

    parser_version = Recorder.parser_version + 3

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        for piece in super().split(path, start, line):
            if isinstance(piece, SourceRecord):
                fields = {field.name: getattr(piece, field.name) for field in dataclasses.fields(SourceRecord)}
                piece = SourceRecord(**{**fields, "bundle_ref": f"task {piece.value['task_id']}"})
            yield piece


def test_a_bundle_that_was_redacted_is_read_off_the_log_or_stays(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Today())
    lines = [*two_calls("a", "mia@example.org", 0), *two_calls("b", "5", 0, said="ask mia@example.org")]
    lines = [{**line, "policy_version": "other@1"} for line in lines]
    path = take_in(workspace, lines)
    use(monkeypatch, ByTask())
    assert replay(workspace).placed == {"bundle_key": 4}
    path.unlink()
    shown = replay(workspace)
    # what stands in the log's place is a token, and nobody knows the name of that bundle any more
    assert shown.unplaced == {placed_anew.REDACTED: 2}
    assert shown.placed == {"bundle_key": 2}


def test_every_record_of_real_logs_is_found_where_it_was_landed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_logs: Path
) -> None:
    workspace = make_workspace(tmp_path / "workspace")
    names = (
        "codex_cli",
        "langfuse_export_chatml",
        "otel_genai_otlp",
        "inspect_ai",
        "opencode",
        "tau2_bench",
        "kimi_cli",
        "openhands",
    )
    land(workspace, [shared_logs / name for name in names])
    monkeypatch.setattr(placed_anew, "_in_log", lambda *_: {})  # as if all logs were rotated away
    placing = placed_anew.look(workspace, format=None, first=None, last=None, every=True)
    assert placing.rows.num_rows == workspace.lake.num_rows(RECORDS.name) > 100
    assert (placing.moved, placing.kept) == ([], {})


PROGRAM = """
import sys
from pipelines import replay
from pipelines.landing import redacted_anew, registry
from pipelines.workspace import Workspace
from tests.replay.test_placed_anew import Today
registry.FORMATS = tuple(Today() if f.name == "recorder" else f for f in registry.FORMATS)
redacted_anew.SLICE_ROWS = 4
replay.replay(Workspace.open(sys.argv[1]), apply=True)
"""


@pytest.mark.parametrize(
    ("step", "built_between"),
    [
        ("replay:unmade", True),
        ("landing/records:after_commit#3", True),
        ("landing/records:after_commit#3", False),
        ("trajectories/trajectories:after_commit#4", False),
    ],
)
def test_a_kill_at_any_step_heals(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, step: str, built_between: bool) -> None:
    use(monkeypatch, Naive())
    take_in(workspace)
    environment = {**os.environ, "NIGHTSHIFT_KILL_AT": step, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(workspace.folder)]
    killed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    use(monkeypatch, Today())
    if built_between:
        trajectories.build(workspace)
    replay(workspace, apply=True)
    trajectories.build(workspace)
    fresh = make_workspace(workspace.folder.parent / "fresh")
    take_in(fresh)
    same_as_fresh(workspace, fresh)
