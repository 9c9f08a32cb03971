"""Watch mode: what is logged lands while it runs, and it ends between two rounds."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import SourceError
from pipelines.ingest import watch
from pipelines.landing.watching import Look, Seen, look
from pipelines.schemas import RECORDS
from pipelines.workspace import Workspace
from tests.landing.lines import call, line, write_lines
from tests.landing.test_at_rest import DOCUMENT

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


LATER = 1e9
"""Seconds by which the clock of a look is ahead of the files, so that all have settled."""


def looked(workspace: Workspace, logs: Path, seen: Seen, at: float | None = None, **more: Any) -> Look:
    clock = time.time() + LATER if at is None else at
    return look(workspace, [logs], seen, clock=lambda: clock, **more)


def test_a_look_sees_what_appears_grows_is_replaced_or_goes(workspace: Workspace, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    path = write_lines(logs / "b" / "log.jsonl", [call(1)])
    write_lines(logs / ".hidden" / "log.jsonl", [call(1)])
    found = looked(workspace, logs, Seen())
    assert found.changed and found.whole
    steps: list[Callable[[], object]] = [
        lambda: path.write_bytes(path.read_bytes() + b"x"),
        lambda: write_lines(logs / "a.jsonl", [call(3)]),
        lambda: os.utime(path, (1, 1)),
        lambda: path.rename(path.with_name("other.jsonl")),
        lambda: (logs / "a.jsonl").unlink(),
    ]
    for step in steps:
        again = looked(workspace, logs, Seen.of(found.seen.text()))
        assert not again.changed and len(again.seen.text()) < 300
        step()
        found = looked(workspace, logs, again.seen)
        assert found.changed
    write_lines(logs / ".hidden" / "log.jsonl", [call(2)])
    assert not looked(workspace, logs, found.seen).changed


def test_a_change_waits_until_its_file_has_settled_but_not_for_ever(workspace: Workspace, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "logs" / "log.jsonl", [call(1)])
    now = path.stat().st_mtime
    found = looked(workspace, path.parent, Seen(), now + 1)
    assert not found.changed and found.whole
    found = looked(workspace, path.parent, found.seen, now + 5)
    assert found.changed
    # it is written to all the time
    seen, taken = found.seen, 0
    for second in range(6, 140, 2):
        path.write_bytes(path.read_bytes() + b"x")
        found = looked(workspace, path.parent, seen, path.stat().st_ctime + 0.5 if second else 0)
        seen, taken = found.seen, taken + found.changed
        seen = dataclasses.replace(seen, waiting_since=None if seen.waiting_since is None else seen.waiting_since - 2)
    assert 1 <= taken <= 3


def test_a_look_that_runs_out_of_time_goes_on_at_the_same_file(workspace: Workspace, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for number in range(12):
        write_lines(logs / f"{number % 3}" / f"{number}.jsonl", [call(number)])
    one_look = looked(workspace, logs, Seen())
    seen, looks = Seen(), 0
    while not (found := looked(workspace, logs, Seen.of(seen.text()), longest=-1)).whole:
        seen, looks = found.seen, looks + 1
        assert not found.changed
    assert looks == 12 and found.changed and found.seen.state == one_look.seen.state
    assert not looked(workspace, logs, found.seen).changed


def test_a_document_that_was_cut_is_looked_at_again_once_it_is_at_rest(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "results.json"
    path.parent.mkdir()
    path.write_bytes(DOCUMENT[:-40])
    now, rest = path.stat().st_mtime, workspace.config.landing.at_rest_seconds
    found = looked(workspace, path.parent, Seen(), now + 10)
    assert found.changed
    assert not looked(workspace, path.parent, found.seen, now + rest + 10).changed  # nothing waits
    assert not looked(workspace, path.parent, found.seen, now + rest - 10, resting=True).changed
    found = looked(workspace, path.parent, found.seen, now + rest + 10, resting=True)
    assert found.changed
    assert not looked(workspace, path.parent, found.seen, now + rest + 80, resting=True).changed


def test_a_cursor_of_another_make_is_none() -> None:
    for text in (None, "", "7fe0", "[]", '{"other": 1}', "{}"):
        assert Seen.of(text) == Seen()


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
