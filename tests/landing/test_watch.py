"""Watch mode: what is logged lands while it runs, and it ends between two rounds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.errors import SourceError
from pipelines.ingest import watch
from pipelines.landing.sources import state_of
from pipelines.schemas import RECORDS
from pipelines.workspace import Workspace
from tests.landing.lines import call, line, write_lines

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_logged_meanwhile_lands_in_the_next_round(workspace: Workspace, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "logs" / "log.jsonl", [call(1)])

    def append(content: bytes) -> None:
        with path.open("ab") as stream:
            stream.write(content)

    steps: list[Callable[[], object]] = [
        lambda: append(line(call(2))[:-20]),
        lambda: append(line(call(2))[-20:]),
        lambda: None,
        lambda: write_lines(path.with_name("other.jsonl"), [call(3)]),
        lambda: path.unlink(),
    ]

    def stopped(seconds: float) -> bool:
        if steps:
            steps.pop(0)()
            return False
        return True

    found = list(watch(workspace, [tmp_path / "logs"], stopped=stopped, seconds=0))
    assert [one["records"] for one in found] == [1, 1, 1]
    assert workspace.lake.num_rows(RECORDS.name) == 3


def test_a_source_that_is_missing_is_said_at_once_and_one_that_goes_later_is_waited_for(
    workspace: Workspace, tmp_path: Path
) -> None:
    with pytest.raises(SourceError):
        list(watch(workspace, [tmp_path / "nowhere"], stopped=lambda _: True))
    path = write_lines(tmp_path / "log.jsonl", [call(1)])
    steps: list[Callable[[], object]] = [path.unlink, lambda: write_lines(path, [call(2)])]
    found = list(watch(workspace, [path], stopped=lambda _: not steps or bool(steps.pop(0)() and False), seconds=0))
    assert [one.get("records") for one in found] == [1, None, 1]
    assert "does not exist" in found[1]["problem"]


def test_the_state_of_files_changes_with_them_alone(workspace: Workspace, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", [call(1)])
    before = state_of(workspace, [tmp_path])
    assert state_of(workspace, [tmp_path]) == before
    with path.open("ab") as stream:
        stream.write(b"x")
    assert state_of(workspace, [tmp_path]) != before


def test_the_command_ends_cleanly_when_told(workspace: Workspace, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", [call(1)])
    command = [sys.executable, "-m", "pipelines", "ingest", "--watch", "--json", "--workspace", str(workspace.folder), str(path)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert running.stdout is not None
    assert json.loads(running.stdout.readline())["records"] == 1
    with path.open("ab") as stream:
        stream.write(line(call(2)))
    assert json.loads(running.stdout.readline())["records"] == 1
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
