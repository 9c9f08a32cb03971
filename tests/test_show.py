"""Answers as a newcomer reads them: what was taken in and what was not, which nights there are, what a top-up should run."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines import progress, show, terminal
from pipelines.batches import lane_counts
from pipelines.groups import want, wanted_tasks
from pipelines.ingest import ingest
from pipelines.schemas import LANES, SPLITS
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.deliver import call, deliver
from tests.landing.lines import call as line_of
from tests.landing.lines import write_lines

Shown = Callable[..., str]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    monkeypatch.setattr(terminal.console, "width", 200)

    def draw(drawer: Callable[..., None], content: object, **options: bool) -> str:
        drawer(content, **options)
        return capsys.readouterr().out

    return draw


def test_what_no_trajectory_is_made_of_is_said_once_with_its_reason(workspace: Workspace, tmp_path: Path, shown: Shown) -> None:
    found = ingest(workspace, [write_lines(tmp_path / "log.jsonl", [line_of(1), line_of(2)])])
    told = shown(show.ingested, {**found, "duplicates": 3, "left_out": {"exact": 1, "duplicate_view": 2}})
    assert "2" in told and "duplicates" not in told
    (line,) = [line for line in told.splitlines() if "left out" in line]
    assert "3 records that no trajectory is made of: 1 exact (a copy), 2 duplicate_view (shows what other records hold)" in line


def test_a_second_ingest_says_that_nothing_was_new(workspace: Workspace, tmp_path: Path, shown: Shown) -> None:
    log = write_lines(tmp_path / "log.jsonl", [line_of(1)])
    assert "Nothing was new" not in shown(show.ingested, ingest(workspace, [log]))
    told = shown(show.ingested, ingest(workspace, [log]))
    assert told.startswith("Nothing was new: every record is in the lake already. Files read: recorder 1.")


def test_a_night_that_never_was_names_those_that_were(workspace: Workspace, shown: Shown) -> None:
    assert "no night has run yet" in shown(show.lanes, lane_counts(workspace, "2026-11-20"))
    nights = [f"2026-11-{day}" for day in range(10, 22)]
    rows = [{"trajectory_id": "trj_1", "night": night, "lane": "excluded", "lane_reason": "no_siblings"} for night in nights]
    workspace.lake.append(LANES.name, pa.Table.from_pylist(rows, schema=LANES.schema))
    told = shown(show.lanes, lane_counts(workspace, "2020-01-01"))
    assert told == f"no night 2020-01-01 has run; there is {', '.join(nights[2:])} and 2 older\n"
    assert "no other attempt" in shown(show.lanes, lane_counts(workspace, None))


def test_wanted_tasks_are_explained_and_the_first_are_shown(workspace: Workspace, shown: Shown) -> None:
    tasks = [f"{number:02}" for number in range(25)]
    deliver(workspace, [call(f"a{task}", task=task) for task in tasks])
    build(workspace)
    keys = [workspace.identity.task_key("sums", task) for task in tasks]
    rows = [{"task_key": key, "split": "train", "source": "drawn", "day": "2026-11-20"} for key in keys]
    workspace.lake.append(SPLITS.name, pa.Table.from_pylist(rows, schema=SPLITS.schema))
    assert "written at the end of a night" in shown(show.wanted, wanted_tasks(workspace))
    want(workspace, "2026-11-20")
    told = shown(show.wanted, wanted_tasks(workspace))
    assert told.startswith("25 tasks want more attempts (night 2026-11-20).\nOrder: what is uncertain, recent and often asked, ")
    assert (told.count(" sums "), told.splitlines()[-1]) == (20, "5 more: --all")
    every = shown(show.wanted, wanted_tasks(workspace), every=True)
    assert every.count(" sums ") == 25 and "--all" not in every


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_in_bytes_is_shown_as_megabytes(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    stream = Stream()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    with progress.bar("landing", 20_000_000, unit="bytes") as advance:
        advance(5_000_000)
    assert "5.0" in stream.getvalue() and "20.0 MB" in stream.getvalue() and "000000" not in stream.getvalue()


def test_lanes_as_json_hold_the_nights(workspace: Workspace) -> None:
    assert json.loads(json.dumps(lane_counts(workspace, None))) == {"night": None, "lanes": [], "nights": []}
