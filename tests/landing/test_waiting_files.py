"""What waits for its end is named, whatever else was taken in; own redaction rules that would do nothing are refused."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest

from pipelines.errors import ConfigError
from pipelines.ingest import ingest
from pipelines.landing.land import land
from pipelines.schemas import QUARANTINE
from pipelines.show import ingested
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.landing.lines import call, write_lines


def test_a_cut_document_is_named_beside_what_landed(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, cut = write_lines(tmp_path / "good.jsonl", [call(1)]), tmp_path / "cut.json"
    cut.write_text('[{"task_id": 1, "reward": 1.0, "traj": [', encoding="utf-8")
    found = ingest(workspace, [good, cut])
    assert (found["records"], found["waiting"]) == (1, 1) and found["waiting_files"][0].endswith("cut.json")
    ingested(found)
    assert "cut.json" in "".join(capsys.readouterr().out.split())


def test_a_time_that_lies_ahead_keeps_nothing_waiting(workspace: Workspace, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text('[{"task_id": 1, "reward": 1.0, "traj": [', encoding="utf-8")
    tomorrow = time.time() + 86_400
    os.utime(cut, (tomorrow, tomorrow))
    landed = land(workspace, [cut])
    assert (landed.waiting, landed.quarantined) == (0, 1)


def test_bad_lines_of_a_compressed_copy_are_looked_up_in_one_pass(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.landing import whereabouts

    lines = b"".join(b"no json %d\n" % number for number in range(50)) + b'{"recorder": 1, "kind": "call"}\n'
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        (tmp_path / name).write_bytes(gzip.compress(lines))
    opened: list[Path] = []
    before = whereabouts.open_log
    monkeypatch.setattr(whereabouts, "open_log", lambda path: opened.append(path) or before(path))
    land(workspace, [tmp_path / "a.jsonl.gz"], format="recorder")
    land(workspace, [tmp_path / "b.jsonl.gz"], format="recorder")
    assert len(opened) <= 2
    assert {row["source"].rsplit("/", 1)[1] for row in workspace.lake.read(QUARANTINE.name).to_pylist()} == {"a.jsonl.gz"}


def test_a_file_of_rules_without_a_rule_is_refused(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", '[redaction]\nrules = "own.toml"\n')
    for text in ("", '[[rules]]\nname = "customer"\npattern = "(CUST-[0-9]+)"\n'):
        (workspace.folder / "own.toml").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"own\.toml cannot be read"):
            land(workspace, [write_lines(tmp_path / "log.jsonl", [call(1)])])
