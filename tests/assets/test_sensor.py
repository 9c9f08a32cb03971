"""The sensor of [[sources]], evaluated by Dagster: what it asks for, and that the run that it asks for lands the log."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dagster as dg
import pytest

from assets import jobs
from assets.definitions import build_definitions
from pipelines.landing import watching
from pipelines.schemas import RECORDS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.landing.lines import call, write_lines
from tests.landing.test_at_rest import DOCUMENT


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace = make_workspace(tmp_path / "workspace", '[[sources]]\npath = "logs"\n[landing]\nat_rest_seconds = 30\n')
    monkeypatch.setattr(watching.look, "__kwdefaults__", {**watching.look.__kwdefaults__, "settled_seconds": 0.0})
    return workspace


class Sensor:
    def __init__(self, workspace: Workspace) -> None:
        self.definitions = build_definitions(workspace.folder)
        (self.sensor,) = self.definitions.get_repository_def().sensor_defs
        self.instance, self.cursor = dg.DagsterInstance.ephemeral(), None

    def tick(self) -> list[str | None]:
        """Run keys that one evaluation asks for; the cursor is kept as the daemon does."""
        context = dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, repository_def=self.definitions.get_repository_def()
        )
        with context:
            found = self.sensor.evaluate_tick(context)
        self.cursor = found.cursor
        assert bool(found.run_requests) != bool(found.skip_message)
        return [request.run_key for request in found.run_requests or ()]

    def run(self) -> None:
        assert self.definitions.resolve_job_def("land").execute_in_process(instance=self.instance).success


def test_what_the_sources_get_is_asked_for_once_and_landed(watched: Workspace) -> None:
    sensor = Sensor(watched)
    assert len(sensor.tick()) <= 1  # nothing is there yet
    path = write_lines(watched.folder / "logs" / "log.jsonl", [call(1)])
    (first,) = sensor.tick()
    sensor.run()
    assert watched.lake.num_rows(RECORDS.name) == 1
    assert sensor.tick() == []
    write_lines(path, [call(1), call(2)])
    (second,) = sensor.tick()
    assert second != first
    sensor.run()
    assert watched.lake.num_rows(RECORDS.name) == 2
    assert sensor.tick() == [] == sensor.tick()


def test_a_document_that_stays_cut_is_asked_for_again_once_it_is_at_rest(watched: Workspace) -> None:
    sensor = Sensor(watched)
    path = watched.folder / "logs" / "results.json"
    path.parent.mkdir()
    path.write_bytes(DOCUMENT[:-40])
    assert len(sensor.tick()) == 1
    sensor.run()
    assert watched.lake.num_rows("landing/quarantine") == 0
    assert sensor.tick() == []
    rest = watched.config.landing.at_rest_seconds
    then = time.time() - rest - 1
    os.utime(path, (then, then))
    sensor.tick()
    sensor.run()
    assert watched.lake.num_rows("landing/quarantine") == 1
    assert sensor.tick() == []


def test_a_large_tree_is_looked_at_over_several_ticks(watched: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write_lines(watched.folder / "logs" / f"{number}.jsonl", [call(number)])
    sensor = Sensor(watched)
    monkeypatch.setattr(
        jobs, "look", lambda *given, **named: watching.look(*given, **{**named, "longest": -1.0})
    )  # the time is over after one file
    asked = [sensor.tick() for _ in range(6)]
    assert [len(keys) for keys in asked] == [0, 0, 0, 0, 0, 1]
    assert sensor.cursor is not None and len(sensor.cursor) < 300
