"""Quarantine tried again: what a mended parser can read lands exactly once, and its piece is in quarantine no more."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines import doctor, trajectories
from pipelines.errors import ConfigError, UnknownReferenceError
from pipelines.landing import quarantine, registry
from pipelines.landing.format import BadRecord, Piece
from pipelines.landing.head import Head
from pipelines.landing.jsonl import split_lines
from pipelines.landing.land import land
from pipelines.landing.recorder import Recorder, _facts
from pipelines.landing.retrying import retry as retry_pieces
from pipelines.landing.tau_bench import TauBench
from pipelines.replay import retry
from pipelines.schemas import QUARANTINE, RECORDS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.landing.lines import call, item, line, write_lines

ROOT = Path(__file__).resolve().parents[2]


class Mended(Recorder):
    """A parser of tomorrow: it also reads calls of recorder version 2."""

    parser_version = Recorder.parser_version + 1

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        return split_lines(
            path, start, line, lambda value: _facts({**value, "recorder": 1} if isinstance(value, dict) else value)
        )


class Blind(Recorder):
    """One that recognises no file."""

    def detect(self, head: Head) -> bool:
        return False


def use(monkeypatch: pytest.MonkeyPatch, parser: Any) -> None:
    monkeypatch.setattr(registry, "FORMATS", tuple(parser if f.name == parser.name else f for f in registry.FORMATS))


def new(number: int, **changes: Any) -> dict[str, Any]:
    return call(number, **{"recorder": 2, **changes})


def take_in(workspace: Workspace, path: Path) -> None:
    land(workspace, [path])
    trajectories.build(workspace)


def sound(workspace: Workspace) -> None:
    assert [f.detail for f in doctor.check(workspace) if f.check in ("places", "doubled") and not f.ok] == []


def calls(workspace: Workspace) -> dict[str, tuple[str, int, int]]:
    rows = workspace.lake.read(RECORDS.name).to_pylist()
    assert len({row["record_id"] for row in rows}) == len(rows)
    return {json.loads(row["raw"])["call_id"]: (row["source"], row["line"], row["byte_start"]) for row in rows}


LINES: list[Any] = [call(1), new(2), b"{torn\n", new(3), call(4)]


@pytest.mark.parametrize("packed", [False, True])
def test_what_can_be_read_now_lands_with_the_ids_of_landing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packed: bool
) -> None:
    path = write_lines(workspace.folder / "log.jsonl", LINES)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    take_in(workspace, path)
    assert quarantine.counts(workspace) == {"wrong_shape": 2, "bad_json": 1}
    use(monkeypatch, Mended())
    done = retry(workspace)
    assert (done["records"], len(done["left"]), done["stayed"]) == (2, 2, {"it still cannot be read": 1})
    assert done["trajectories"] == 2
    assert quarantine.counts(workspace) == {"bad_json": 1}
    assert calls(workspace)["call-3"] == ("log.jsonl", 4, sum(len(line(v)) if isinstance(v, dict) else len(v) for v in LINES[:3]))
    sound(workspace)
    again = retry(workspace)
    assert (again["records"], again["left"]) == (0, [])
    # the same ids as a lake that met the file with this parser first, and landing it again adds nothing
    fresh = make_workspace(tmp_path / "fresh")
    take_in(fresh, path)
    ids = [
        set(w.lake.read(t, ["record_id"])["record_id"].to_pylist())
        for t in (RECORDS.name, QUARANTINE.name)
        for w in (workspace, fresh)
    ]
    assert ids[0] == ids[1] and ids[2] == ids[3]
    assert land(workspace, [path]).records == 0


def test_one_piece_can_be_asked_for(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    take_in(workspace, write_lines(workspace.folder / "log.jsonl", LINES))
    use(monkeypatch, Mended())
    wanted = next(row["record_id"] for row in quarantine.listed(workspace) if row["line"] == 4)
    assert retry(workspace, [wanted])["left"] == [wanted]
    assert set(calls(workspace)) == {"call-1", "call-3", "call-4"}
    with pytest.raises(UnknownReferenceError):
        retry(workspace, [wanted])


def test_a_file_that_is_gone_is_read_from_the_kept_text(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(workspace.folder / "log.jsonl", LINES)
    take_in(workspace, path)
    content = path.read_bytes()
    path.write_bytes(b"\n" * len(content))  # rotated: other bytes at the same place
    use(monkeypatch, Mended())
    assert len(retry(workspace)["left"]) == 2
    assert calls(workspace)["call-3"][:2] == ("log.jsonl", 4)
    path.unlink()
    assert retry(workspace)["stayed"] == {"it still cannot be read": 1}
    path.write_bytes(content)  # and when it comes back, nothing doubles
    assert land(workspace, [path]).records == 0
    sound(workspace)


def test_redacted_text_waits_for_its_file(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mail = {"messages": [{"role": "user", "content": "I am someone@example.org"}]}
    path = write_lines(workspace.folder / "log.jsonl", [call(1), new(2, request=mail)])
    take_in(workspace, path)
    moved = path.rename(path.with_name("moved.jsonl"))
    use(monkeypatch, Mended())
    # its ids, and those of its task, are of the bytes that were redacted: landed from here it would stand twice
    assert retry(workspace)["stayed"] == {"its file is gone or changed, and the kept text is redacted": 1}
    take_in(workspace, moved)
    assert set(calls(workspace)) == {"call-1", "call-2"}
    moved.rename(path)
    assert len(retry(workspace)["left"]) == 1
    fresh = make_workspace(tmp_path / "fresh")
    take_in(fresh, path)
    held = [sorted(w.lake.read(RECORDS.name, ["record_id"])["record_id"].to_pylist()) for w in (workspace, fresh)]
    assert held[0] == held[1]
    sound(workspace)


def test_a_piece_that_stands_twice_in_a_file_leaves_quarantine(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    take_in(workspace, write_lines(workspace.folder / "log.jsonl", [call(1), new(2), new(2), call(3)]))
    assert quarantine.counts(workspace) == {"wrong_shape": 2}
    use(monkeypatch, Mended())
    done = retry(workspace)
    assert (done["records"], len(done["left"]), done["stayed"]) == (1, 2, {})
    assert quarantine.counts(workspace) == {}
    assert set(calls(workspace)) == {"call-1", "call-2", "call-3"}
    sound(workspace)


def test_a_line_that_was_too_long_is_read_from_its_file(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.landing import jsonl

    monkeypatch.setattr(jsonl, "LONGEST_LINE", 2_000)
    take_in(workspace, write_lines(workspace.folder / "log.jsonl", [call(1), call(2, task_id="x" * 3_000)]))
    assert quarantine.counts(workspace) == {"too_long": 1}
    monkeypatch.undo()
    assert len(retry(workspace)["left"]) == 1
    assert set(calls(workspace)) == {"call-1", "call-2"}


def test_items_without_ids_are_counted_as_landing_counts_them(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Strict(TauBench):
        def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
            for piece in super().split(path, start, line):
                if not isinstance(piece, BadRecord) and piece.line > 1:  # type: ignore[union-attr]
                    at = {"line": piece.line, "byte_start": piece.byte_start, "byte_end": piece.byte_end}  # type: ignore[union-attr]
                    raw = path.read_bytes()[at["byte_start"] : at["byte_end"]]
                    yield BadRecord(**at, reason="wrong_shape", detail="too strict", raw=raw)
                else:
                    yield piece

    path = workspace.folder / "results.json"
    path.write_text("[" + ",\n".join(json.dumps(item(number)) for number in (1, 1, 1, 2, 2)) + "]", encoding="utf-8")
    strict = Strict()
    use(monkeypatch, strict)
    take_in(workspace, path)
    assert quarantine.counts(workspace) == {"wrong_shape": 4}
    use(monkeypatch, TauBench())
    content = path.read_bytes()
    path.unlink()  # the kept text is counted among what is known of its file
    first = [row["record_id"] for row in quarantine.listed(workspace)][1:3]
    assert len(retry(workspace, first)["left"]) == 2
    path.write_bytes(content)
    retry(workspace)
    fresh = make_workspace(tmp_path / "fresh")
    take_in(fresh, path)
    held = [sorted(w.lake.read(RECORDS.name, ["record_id"])["record_id"].to_pylist()) for w in (workspace, fresh)]
    assert len(held[0]) == 5 and held[0] == held[1]
    assert quarantine.counts(workspace) == {}


def test_a_file_that_is_recognised_now_is_landed(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = workspace.folder / "logs"
    write_lines(logs / "log.jsonl", [call(1), b"{torn\n", call(2)])
    (logs / "note.txt").write_text("hello", encoding="utf-8")
    use(monkeypatch, Blind())
    take_in(workspace, logs)
    assert quarantine.counts(workspace) == {"unknown_format": 2}
    use(monkeypatch, Recorder())
    done = retry(workspace)
    assert (done["records"], len(done["left"])) == (2, 1)
    assert done["stayed"] == {"no format recognises the file": 1}
    assert quarantine.counts(workspace) == {"bad_json": 1, "unknown_format": 1}
    sound(workspace)


def test_bundles_that_could_not_be_read_are_listed_and_tried_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Recorder):
        def attempts(self, records: Any) -> Any:
            raise KeyError("nothing")

    use(monkeypatch, Broken())
    take_in(workspace, write_lines(workspace.folder / "log.jsonl", [call(1), call(2)]))
    assert quarantine.counts(workspace) == {"unreadable": 2}
    (one, _) = quarantine.listed(workspace, reason="unreadable")
    shown = quarantine.show(workspace, one["record_id"])
    assert shown["detail"] == "KeyError: 'nothing'" and "call-" in shown["raw"]
    use(monkeypatch, Recorder())
    assert retry(workspace, [one["record_id"]])["readable"] == 1
    assert quarantine.counts(workspace) == {"unreadable": 1}
    assert retry(workspace)["readable"] == 1
    sound(workspace)
    with pytest.raises(ConfigError):
        quarantine.listed(workspace, reason="nonsense")


PROGRAM = """
import sys
from pipelines.landing import registry, retrying
from pipelines.workspace import Workspace
from tests.landing.test_quarantine import Mended
registry.FORMATS = tuple(Mended() if f.name == "recorder" else f for f in registry.FORMATS)
retrying.retry(Workspace.open(sys.argv[1]))
"""


@pytest.mark.parametrize("step", ["landing/records:before_commit", "quarantine:landed", "landing/quarantine:before_commit"])
def test_a_kill_between_landing_and_leaving_quarantine_heals(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    take_in(workspace, write_lines(workspace.folder / "log.jsonl", LINES))
    environment = {**os.environ, "NIGHTSHIFT_KILL_AT": step, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(workspace.folder)]
    killed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    use(monkeypatch, Mended())
    assert len(retry_pieces(workspace).left) == 2
    assert set(calls(workspace)) == {"call-1", "call-2", "call-3", "call-4"}
    assert quarantine.counts(workspace) == {"bad_json": 1}


def test_the_command_line(workspace: Workspace) -> None:
    take_in(workspace, write_lines(workspace.folder / "log.jsonl", LINES))

    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "pipelines", "quarantine", *arguments, "-w", str(workspace.folder), "--json"]
        return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)

    everything = run()
    assert len(everything) == 3 and run("list") == everything
    (torn,) = run("list", "--reason", "bad_json", "--num", "1")
    assert run("show", torn["record_id"])["raw"] == "{torn"
    assert run("retry")["stayed"] == {"it still cannot be read": 3}
