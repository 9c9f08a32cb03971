"""The schedule with a real daemon and a real clock: a tick ends in a decision, nights do not overlap, a missed one runs once.

Takes about eight minutes of waiting for the clock, so it is part of `make drill`.
"""

from __future__ import annotations

import datetime
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from assets.home import instance_of
from pipelines.schemas import DECISIONS
from pipelines.workspace import Workspace
from tests.assets.conftest import toy_workspace

ROOT = Path(__file__).resolve().parents[2]
SLOW_VERIFIER = """
import time

def verify(task_id, turns):
    time.sleep(6)
    answer = [turn for turn in turns if turn["sampled"]][-1]["content"] or ""
    return sum(answer.encode()) % 5 / 4
"""

pytestmark = pytest.mark.drill


@contextmanager
def daemon(workspace: Workspace) -> Iterator[None]:
    command = [sys.executable, "-m", "assets.dev", "--workspace", str(workspace.folder), "--port", "0"]
    log = (workspace.folder / "dev.log").open("ab")
    running = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(timeout=120)
        log.close()


def nights(workspace: Workspace) -> list[dg.DagsterRun]:
    with instance_of(workspace.folder) as instance:
        records = instance.get_run_records(dg.RunsFilter(job_name="nightly"), ascending=True)
        return [record.dagster_run for record in records]


def times(workspace: Workspace) -> list[tuple[float, float | None]]:
    with instance_of(workspace.folder) as instance:
        records = instance.get_run_records(dg.RunsFilter(job_name="nightly"), ascending=True)
        return [(record.start_time, record.end_time) for record in records if record.start_time is not None]


def wait_for(what: str, true: object, seconds: float) -> None:
    assert callable(true)
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not seen within {seconds} s: {what}"
        time.sleep(1)


def finished(workspace: Workspace) -> int:
    return sum(1 for run in nights(workspace) if run.status == dg.DagsterRunStatus.SUCCESS)


def test_the_clock_runs_the_nights(tmp_path: Path, toy_model: Path) -> None:
    from tests.assets.conftest import serve_night

    today = datetime.datetime.now(datetime.UTC).date()
    schedule = '\n[schedule]\nenabled = true\ncron = "* * * * *"\n'
    workspace = toy_workspace(tmp_path / "workspace", toy_model, more=schedule)
    (workspace.folder / "verifier.py").write_text(SLOW_VERIFIER)
    serve_night(workspace, (today - datetime.timedelta(days=1)).isoformat())
    with daemon(workspace):
        wait_for("a night that the schedule launched", lambda: finished(workspace) >= 1, 420)
        decisions = workspace.lake.read(DECISIONS.name).to_pylist()
        assert decisions and decisions[0]["challenger"] is not None
        first = nights(workspace)[0]
        assert first.tags["dagster/schedule_name"] == "every_night"
        # the first night takes minutes with this verifier, so that more ticks came while it ran
        wait_for("the queued nights to end", lambda: finished(workspace) >= 3, 420)
    ran = times(workspace)
    for (_, end), (start, _) in itertools.pairwise(ran):
        assert end is not None and start >= end, "two nights overlap"
    before = len(nights(workspace))
    time.sleep(190)  # three ticks pass while nobody looks
    with daemon(workspace):
        wait_for("the missed night", lambda: len(nights(workspace)) > before, 120)
        time.sleep(20)
        caught_up = nights(workspace)[before:]
    ticks = [run.tags["dagster/run_key"] for run in caught_up]
    # the newest missed tick, and at most those that came after the daemon was back
    assert len(ticks) == len(set(ticks)) and len(ticks) <= 2
