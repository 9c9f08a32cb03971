"""I2: the same bytes, in any order, split and delivered in any way, after any kill and by racing writers, give the same tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipelines import doctor
from pipelines.landing import chunks
from pipelines.landing.land import land
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.landing.lines import call, item, line, write_lines

ROOT = Path(__file__).resolve().parents[2]
DAY = "2026-11-20"

LINES: list[bytes] = [
    *(line(call(number)) for number in range(6)),
    line(call(6, started_at="2026-11-21T00:00:01Z", ended_at="2026-11-21T00:00:02Z")),
    line(call(1, outcome=1.0)),  # the id of another line with other content: both are kept
    b"{torn\n",
    line({"recorder": 1, "kind": "call"}),
]
ITEMS = [item(number) for number in range(4)]


def ids(workspace: Workspace, table: str = "landing/records") -> list[str]:
    return sorted(workspace.lake.read(table, columns=["record_id"]).column("record_id").to_pylist())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("expected")
    workspace = make_workspace(folder / "workspace")
    (folder / "results.json").write_text(json.dumps(ITEMS), encoding="utf-8")
    landed = land(workspace, [write_lines(folder / "log.jsonl", LINES), folder / "results.json"], day=DAY)
    assert (landed.records, landed.quarantined, landed.days) == (12, 2, ["2026-11-20", "2026-11-21"])
    assert len(ids(workspace)) == 12
    return doctor.digest(workspace)


@st.composite
def deliveries(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    """Appends to files, in order: every line at least once, some more than once.

    A bad line, known by its content and number alone, stands once in a file: twice in one file is two records. Each file
    starts with a record, since one that holds nothing but a bad line is a file of no known format.
    """
    bad = set(range(8, len(LINES)))
    order = draw(st.permutations(range(len(LINES))))
    extra = draw(st.lists(st.integers(0, len(LINES) - 1), max_size=6))
    appends: list[tuple[str, list[int]]] = []
    seen: dict[str, set[int]] = {}
    for number in [*order, *extra]:
        name = draw(st.sampled_from(["a.jsonl", "b.jsonl", "c.jsonl"]))
        if number in bad and number in seen.get(name, set()):
            continue
        if name not in seen and number in bad:
            appends.append((name, [0]))
        seen.setdefault(name, set()).add(number)
        if appends and appends[-1][0] == name and draw(st.booleans()):
            appends[-1][1].append(number)
        else:
            appends.append((name, [number]))
    return appends


# a failing delivery is short enough to read as it is, and shrinking it takes minutes
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    appends=deliveries(),
    arrays=st.lists(st.permutations(range(len(ITEMS))), min_size=1, max_size=2),
    land_after=st.sets(st.integers(0, 15), max_size=4),
    pieces=st.sampled_from([1, 3, 1000]),
    cut=st.booleans(),
)
def test_any_split_order_and_repetition_gives_the_same_tables(
    expected: dict[str, str],
    appends: list[tuple[str, list[int]]],
    arrays: list[list[int]],
    land_after: set[int],
    pieces: int,
    cut: bool,
) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_PIECES", pieces)
        folder = Path(name)
        workspace = make_workspace(folder / "workspace")
        logs = folder / "logs"
        logs.mkdir()
        for number, array in enumerate(arrays):
            values = [ITEMS[index] for index in array]
            (logs / f"{number}.json").write_text(json.dumps(values, indent=number), encoding="utf-8")
        for step, (file, numbers) in enumerate(appends):
            written = b"".join(LINES[number] for number in numbers)
            with (logs / file).open("ab") as stream:
                if cut and step in land_after:  # landed in the middle of a line that is being written
                    stream.write(written[:-5])
                    stream.flush()
                    land(workspace, [logs], day=DAY)
                    written = written[-5:]
                stream.write(written)
            if step in land_after:
                land(workspace, [logs], day=DAY)
        land(workspace, [logs], day=DAY)
        again = land(workspace, [logs], day=DAY)
        assert (again.records, again.quarantined) == (0, 0)
        assert doctor.digest(workspace) == expected


def test_per_content_the_table_holds_the_most_that_one_file_has(tmp_path: Path, workspace: Workspace) -> None:
    for name, values in (("one", [1, 1, 2]), ("two", [1, 2, 2]), ("three", [1, 2])):
        (tmp_path / f"{name}.json").write_text(json.dumps([item(number) for number in values]), encoding="utf-8")
    for name, new in (("three", 2), ("one", 1), ("two", 1), ("one", 0)):
        assert land(workspace, [tmp_path / f"{name}.json"], day=DAY).records == new
    assert len(ids(workspace)) == 4


def test_equal_bad_lines_are_counted_across_a_resumption(tmp_path: Path, workspace: Workspace) -> None:
    path = write_lines(tmp_path / "log.jsonl", [call(1), b"{torn\n"])
    land(workspace, [path])
    with path.open("ab") as stream:
        stream.write(b"{torn\n" + line(call(2)))
    landed = land(workspace, [path])
    assert (landed.records, landed.quarantined) == (1, 1)
    assert len(ids(workspace, "landing/quarantine")) == 2


def test_a_grown_file_is_read_on_and_a_rewritten_one_anew(tmp_path: Path, workspace: Workspace) -> None:
    path = write_lines(tmp_path / "log.jsonl", [call(1), call(2)])
    assert (land(workspace, [path]).records, land(workspace, [path]).seen) == (2, 0)
    with path.open("ab") as stream:
        stream.write(line(call(3)))
    grown = land(workspace, [path])
    assert (grown.records, grown.seen) == (1, 0)
    # the same first line, other content behind it, and longer than before
    write_lines(path, [call(1), call(4), call(3), call(5)])
    rewritten = land(workspace, [path])
    assert (rewritten.records, rewritten.seen) == (2, 2)
    write_lines(path, [call(1), call(6)])  # shorter than before
    assert land(workspace, [path]).records == 1
    write_lines(path, [call(7)])  # rotated
    assert (land(workspace, [path]).records, land(workspace, [path]).seen) == (1, 0)
    lines = workspace.lake.read("landing/records", columns=["raw", "line", "byte_start", "byte_end"]).to_pylist()
    assert {json.loads(row["raw"])["call_id"]: row["line"] for row in lines} == {
        "call-1": 1,
        "call-2": 2,
        "call-3": 3,
        "call-4": 2,
        "call-5": 4,
        "call-6": 2,
        "call-7": 1,
    }


def test_a_line_that_was_being_written_lands_once_it_is_whole(tmp_path: Path, workspace: Workspace) -> None:
    path, last = tmp_path / "log.jsonl", line(call(2))
    path.write_bytes(line(call(1)) + last[:50])
    first = land(workspace, [path])
    assert (first.records, first.quarantined, first.waiting) == (1, 0, 1)
    assert land(workspace, [path]).why_nothing is not None
    path.write_bytes(line(call(1)) + last[:-1])
    assert land(workspace, [path]).records == 1
    path.write_bytes(line(call(1)) + last)
    assert land(workspace, [path]).records == 0


def run(folder: Path, paths: list[Path], pieces: int, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.landing.program", str(folder), str(pieces), *map(str, paths)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environment, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


STEPS = [
    "identity:before_commit",
    "identity:after_commit",
    "landing/quarantine:before_commit",
    "landing/quarantine:after_commit",
    "landing/records:before_commit",
    "landing/records:after_commit",
    "landing/records:before_commit#3",
    "landing/records:after_commit#2",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path, expected: dict[str, str], step: str) -> None:
    folder = tmp_path / "workspace"
    folder.mkdir()
    paths = [write_lines(tmp_path / "log.jsonl", LINES), tmp_path / "results.json"]
    paths[1].write_text(json.dumps(ITEMS), encoding="utf-8")
    prepare(folder)
    killed = run(folder, paths, 3, NIGHTSHIFT_KILL_AT=step)
    _, errors = killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL, errors
    workspace = Workspace.open(folder)
    land(workspace, paths, day=DAY)
    assert doctor.digest(workspace) == expected


def prepare(folder: Path) -> None:
    """A workspace that nothing has opened yet: its lake is made by the first process that does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workspace, "open", classmethod(lambda cls, folder: folder))
        make_workspace(folder)
