"""A bad piece is one row of quarantine whatever its file is called, and the row says where it stands now."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing import quarantine
from pipelines.landing.land import land
from pipelines.schemas import QUARANTINE
from pipelines.workspace import Workspace
from tests.landing.lines import call, write_lines


def rows(workspace: Workspace) -> list[tuple[str, str, int]]:
    return sorted((row["source"], row["reason"], row["line"]) for row in quarantine.listed(workspace))


@pytest.mark.parametrize("content", [b"hello, I am no log\n" * 9, b"\0\1binary" * 99], ids=["text", "binary"])
def test_a_file_that_nobody_knows_is_one_row_under_whatever_name(workspace: Workspace, content: bytes) -> None:
    logs = workspace.folder / "logs"
    logs.mkdir()
    path = logs / "old.txt"
    path.write_bytes(content)
    assert land(workspace, [logs]).quarantined == 1
    path = path.rename(logs / "new.txt")
    assert land(workspace, [logs]).quarantined == 0
    assert rows(workspace) == [("logs/new.txt", "unknown_format", 1)]
    (logs / "copy.txt").write_bytes(content)
    land(workspace, [logs])
    assert rows(workspace) == [("logs/new.txt", "unknown_format", 1)]
    version = workspace.lake.version(QUARANTINE.name)
    land(workspace, [logs])
    assert workspace.lake.version(QUARANTINE.name) == version
    path.write_bytes(content + b"more")  # the copy still holds what the row is about
    land(workspace, [logs])
    assert rows(workspace) == [("logs/copy.txt", "unknown_format", 1), ("logs/new.txt", "unknown_format", 1)]


def test_a_file_that_goes_on_growing_stays_one_row(workspace: Workspace) -> None:
    logs = workspace.folder / "logs"
    logs.mkdir()
    for number in range(3):
        (logs / "note.txt").write_text("a line\n" * (number + 1), encoding="utf-8")
        land(workspace, [logs])
        assert rows(workspace) == [("logs/note.txt", "unknown_format", 1)]
    write_lines(logs / "note.txt", [call(1)])
    assert land(workspace, [logs]).records == 1
    assert rows(workspace) == []


BAD: list[Any] = [call(1), b"{torn\n", call(2), b"[1, 2]\n"]


def test_bad_lines_follow_their_file(workspace: Workspace) -> None:
    path = write_lines(workspace.folder / "logs" / "a.jsonl", BAD)
    assert land(workspace, [path.parent]).quarantined == 2
    path = path.rename(path.with_name("b.jsonl"))
    land(workspace, [path.parent])
    assert rows(workspace) == [("logs/b.jsonl", "bad_json", 2), ("logs/b.jsonl", "wrong_shape", 4)]
    # rotated: the old name holds another log now
    packed = path.with_name("c.jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    write_lines(path, [call(7), call(8), call(9), call(10)])
    land(workspace, [path.parent])
    assert [row[0] for row in rows(workspace)] == ["logs/c.jsonl.gz"] * 2
    version = workspace.lake.version(QUARANTINE.name)
    assert land(workspace, [path.parent]).quarantined == 0
    assert workspace.lake.version(QUARANTINE.name) == version


def test_a_copy_moves_nothing(workspace: Workspace, tmp_path: Path) -> None:
    path = write_lines(workspace.folder / "logs" / "b.jsonl", BAD)
    land(workspace, [path])
    path.with_name("a.jsonl").write_bytes(path.read_bytes())
    land(workspace, [path.parent])
    assert {row[0] for row in rows(workspace)} == {"logs/b.jsonl"}
