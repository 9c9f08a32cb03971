"""Kills at random moments and writers that race: some in `make test`, the full counts in `make drill`."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest

from pipelines import doctor
from pipelines.landing.land import land
from pipelines.schemas import QUARANTINE, RECORDS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.landing.lines import call, item, line, write_lines
from tests.landing.test_exactly_once import DAY, ids, prepare, run


@pytest.mark.parametrize(
    "num_kills", [3, pytest.param(200, marks=[pytest.mark.drill, pytest.mark.timeout(7200)])], ids=["few", "all"]
)
def test_random_kills_lose_and_double_nothing(tmp_path: Path, num_kills: int) -> None:
    """Kills while a log grows; what one landing cut off the next one finds."""
    draw = random.Random(num_kills)
    folder, logs = tmp_path / "workspace", tmp_path / "logs"
    prepare(folder)
    path = write_lines(logs / "log.jsonl", [call(number) for number in range(200)])
    paths, number, num_killed = [path, logs / "results.json"], 200, 0
    paths[1].write_text(json.dumps([item(one) for one in range(40)]), encoding="utf-8")
    started = time.monotonic()
    assert run(folder, paths, 7).wait(600) == 0
    whole = time.monotonic() - started
    while num_killed < num_kills:
        with path.open("ab") as stream:
            for _ in range(draw.randint(1, 40)):
                stream.write(b"{torn %d\n" % number if draw.random() < 0.1 else line(call(number)))
                number += 1
        landing = run(folder, paths, draw.choice([1, 3, 7]))
        time.sleep(draw.uniform(0.2, 1.0) * whole)
        landing.send_signal(signal.SIGKILL)
        landing.communicate()
        num_killed += landing.returncode == -signal.SIGKILL
    workspace = Workspace.open(folder)
    land(workspace, paths, day=DAY)
    once = make_workspace(tmp_path / "once")
    land(once, paths, day=DAY)
    assert len(ids(workspace)) == len(set(ids(workspace)))
    assert doctor.digest(workspace) == doctor.digest(once)


@pytest.mark.parametrize(
    "num_batches", [6, pytest.param(100, marks=[pytest.mark.drill, pytest.mark.timeout(7200)])], ids=["few", "all"]
)
def test_four_writers_on_one_source(tmp_path: Path, num_batches: int) -> None:
    """Each of four lands the same source, batch by batch, at the same time."""
    folder = tmp_path / "workspace"
    prepare(folder)
    values: list[object] = [b"{torn %d\n" % number if number % 50 == 49 else call(number) for number in range(10 * num_batches)]
    path = write_lines(tmp_path / "log.jsonl", values)
    writers = [run(folder, [path], 10, NIGHTSHIFT_TEST_GATE="1") for _ in range(4)]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    landed = []
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        output, errors = writer.communicate()
        assert writer.returncode == 0, errors
        landed.append(json.loads(output.splitlines()[-1]))
    workspace = Workspace.open(folder)
    num_bad = sum(isinstance(value, bytes) for value in values)
    for table, word, expected in ((RECORDS, "records", len(values) - num_bad), (QUARANTINE, "quarantined", num_bad)):
        held = ids(workspace, table.name)
        assert len(held) == len(set(held)) == expected == sum(one[word] for one in landed)
    assert next(finding for finding in doctor.check(workspace) if finding.check == "doubled").ok
