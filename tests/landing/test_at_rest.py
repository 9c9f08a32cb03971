"""A file that is written as a whole waits while it is being written, and is quarantined once nobody writes to it any more."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from pipelines.landing import quarantine
from pipelines.landing.land import land, survey
from pipelines.schemas import RECORDS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.landing.formats.test_hermes import written
from tests.landing.formats.test_tau2_bench import results
from tests.landing.formats.test_vcr_cassette import cassette, of_calls
from tests.landing.lines import call, write_lines

DOCUMENT = json.dumps(results(), indent=2).encode()
CASSETTE = cassette(*of_calls("a", "b", "c")).encode()


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.mark.parametrize(("whole", "num_records"), [(DOCUMENT, 1), (CASSETTE, 3)], ids=["json", "yaml"])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.97])
def test_what_is_read_while_it_is_written_is_read_again_and_never_bad(
    workspace: Workspace, tmp_path: Path, whole: bytes, num_records: int, part: float
) -> None:
    path = tmp_path / "logs" / "log"
    path.parent.mkdir()
    path.write_bytes(whole[: int(len(whole) * part)])
    landed = land(workspace, [path.parent])
    assert (landed.quarantined, landed.waiting, landed.resting) == (0, 1, 1)
    path.write_bytes(whole)
    landed = land(workspace, [path.parent])
    assert (landed.waiting, landed.resting) == (0, 0)
    assert quarantine.counts(workspace) == {} and workspace.lake.num_rows(RECORDS.name) == num_records
    fresh = make_workspace(tmp_path / "fresh")
    land(fresh, [path])
    ids = [set(w.lake.read(RECORDS.name, ["record_id"])["record_id"].to_pylist()) for w in (workspace, fresh)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("content", "reason"), [(DOCUMENT[:-40], "bad_json"), (CASSETTE[:-400], "wrong_shape")], ids=["json", "yaml"]
)
def test_what_stays_cut_is_quarantined_once_it_is_at_rest(
    workspace: Workspace, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    seconds = workspace.config.landing.at_rest_seconds
    age(path, seconds / 2)
    assert land(workspace, [path]).resting == 1
    age(path, seconds + 5)
    assert survey(workspace, [path]).quarantined == 1
    landed = land(workspace, [path])
    assert (landed.waiting, landed.resting) == (0, 0)
    assert quarantine.counts(workspace) == {reason: 1}
    again = land(workspace, [path])
    assert (again.records, again.quarantined, again.waiting) == (0, 0, 0)
    age(path, 0)
    assert land(workspace, [path]).waiting == 0  # what was acknowledged stays acknowledged


def test_the_whole_cassette_behind_the_cut_one_is_read_to_its_end(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "log.yaml"
    path.write_bytes(cassette(*of_calls("a", "b")).encode().removesuffix(b"version: 1\n"))
    assert land(workspace, [path]).records == 1  # the last one may go on
    age(path, 3600)
    assert land(workspace, [path]).records == 1
    path.write_bytes(CASSETTE)
    assert land(workspace, [path]).records == 1
    assert workspace.lake.num_rows(RECORDS.name) == 3


def test_how_long_is_a_setting(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", "[landing]\nat_rest_seconds = 0\n")
    path = tmp_path / "log.json"
    path.write_bytes(DOCUMENT[:-40])
    assert land(workspace, [path]).quarantined == 1


def test_a_document_too_short_to_be_known_waits_too(workspace: Workspace, tmp_path: Path) -> None:
    path = written(tmp_path / "logs" / "s.json") if (tmp_path / "logs").mkdir() is None else tmp_path
    whole = path.read_bytes()
    path.write_bytes(whole[:3])
    assert land(workspace, [tmp_path / "logs"]).quarantined == 0
    path.write_bytes(whole)
    assert land(workspace, [tmp_path / "logs"]).records == 1
    path.with_name("note.json").write_bytes(b'{"a"')
    age(path.with_name("note.json"), 3600)
    assert land(workspace, [tmp_path / "logs"]).quarantined == 1
    assert quarantine.counts(workspace) == {"unknown_format": 1}


def test_a_line_without_its_end_waits_however_old_it_is(workspace: Workspace, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", [call(1), b'{"recorder": 1, "call'])
    age(path, 1e6)
    landed = land(workspace, [path])
    assert (landed.records, landed.quarantined, landed.waiting, landed.resting) == (1, 0, 1, 0)
