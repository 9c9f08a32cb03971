"""Other processes make the rows: the same tables, a clear word where one dies, and none that outlives its starter."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines import doctor
from pipelines.errors import RowWorkerError
from pipelines.landing import line_blocks, pooled, row_pool
from pipelines.landing.jsonl import Lines
from pipelines.landing.land import land, survey
from pipelines.landing.line_blocks import Block, blocks
from pipelines.landing.registry import by_name
from pipelines.landing.row_frames import can_be_told
from pipelines.reports import Landed
from pipelines.schemas import QUARANTINE, RECORDS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.landing.lines import call, item, line, write_lines
from tests.landing.test_exactly_once import DAY, prepare, run
from tests.landing.test_registry import FILES

SECRET = "write to mia.li@example.com, key sk-ant-api03-" + "a1B2" * 24
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are started for the first line, and get few lines at once."""
    monkeypatch.setattr(row_pool, "POOL_BYTES", 0)
    for module in (line_blocks, pooled):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1500)
    monkeypatch.setattr(line_blocks, "BLOCK", 700)
    monkeypatch.setattr(line_blocks, "LONGEST", 20_000)


def example(number: int, text: str = "Where is it?") -> bytes:
    """A line without an id or time of its own."""
    turns = [{"role": "user", "content": text}, {"role": "assistant", "content": f"There: {number}."}]
    return json.dumps({"messages": turns}).encode() + b"\n"


def secret(number: int) -> bytes:
    return line(call(number, request={"messages": [{"role": "user", "content": SECRET}], "tools": None}))


def fill(logs: Path) -> None:
    """Every format, and what is hard to cut."""
    for number, (_, content) in enumerate(FILES):
        logs.mkdir(exist_ok=True)
        (logs / f"f{number:03}").write_bytes(content)
    torn = [b"{torn\n", b"{torn %d\n" % 1, b'{"recorder": 1}\n']
    parts = [line(call(number)) if number % 7 else secret(number) for number in range(60)]
    for place in (50, 31, 30, 12, 5):
        parts[place:place] = torn
    (logs / "m.jsonl").write_bytes(b"\xef\xbb\xbf" + b"".join([*parts, *parts[:9], b"\r\n", line(call(99))[:60]]))
    examples = [example(number % 5, SECRET if number % 3 == 0 else "Where?") for number in range(70)]
    (logs / "n.jsonl").write_bytes(b"".join([*examples[:40], b"{torn\n", *examples[40:], b"{torn\n"]))
    (logs / "o.jsonl").write_bytes(b"".join(examples[10:60])[:-1])
    (logs / "p.json").write_text(json.dumps([item(number) for number in range(9)]), encoding="utf-8")
    long = call(200, request={"messages": [{"role": "user", "content": "w " * 40_000}], "tools": None})
    (logs / "q.jsonl").write_bytes(b"".join([*examples[:30], example(3, "w " * 40_000), *examples[:30]]))
    (logs / "r.jsonl").write_bytes(line(call(201)) + line(long) + line(call(202)))
    packed = gzip.compress(b"".join(line(call(number)) for number in range(300, 360)))
    (logs / "s.jsonl.gz").write_bytes(packed)
    (logs / "t.jsonl.gz").write_bytes(gzip.compress(b"".join(line(call(number)) for number in range(400, 600)))[:-3000])


def grow(logs: Path) -> None:
    """Lines that equal earlier ones, in files that were read before; a file that was written anew, one under a new name."""
    with (logs / "n.jsonl").open("ab") as stream:
        stream.write(b"".join([example(1), example(1), b"{torn\n", example(77), example(77)]))
    with (logs / "m.jsonl").open("ab") as stream:
        stream.write(line(call(99))[60:] + b"".join(line(call(number)) for number in range(100, 120)))
    write_lines(logs / "r.jsonl", [call(number) for number in range(195, 203)])
    (logs / "o.jsonl").rename(logs / "u.jsonl")


def rows(workspace: Workspace) -> list[object]:
    """All rows of both tables, with where they stood, but not when they landed."""
    found: list[object] = []
    for table in (RECORDS.name, QUARANTINE.name):
        listed = workspace.lake.read(table).drop(["landed_at"]).to_pylist()
        found.append(sorted(listed, key=lambda row: row["record_id"]))
    return found


def landed_twice(folder: Path, workers: int) -> tuple[list[Landed], list[object], dict[str, str]]:
    workspace = make_workspace(folder / f"by-{workers}", f"[landing]\nworkers = {workers}\n")
    logs = folder / f"logs-{workers}"
    fill(logs)
    link = folder / "logs"  # every workspace sees its files under the same name
    link.unlink(missing_ok=True)
    link.mkdir()
    for path in sorted(logs.iterdir()):
        (link / path.name).write_bytes(path.read_bytes())
    said = [survey(workspace, [link], day=DAY), land(workspace, [link], day=DAY)]
    grow(link)
    said += [land(workspace, [link], day=DAY), land(workspace, [link], day=DAY)]
    for path in link.iterdir():
        path.unlink()
    link.rmdir()
    return [replace(one, versions={}) for one in said], rows(workspace), doctor.digest(workspace)


@pytest.mark.usefixtures("eager")
def test_the_tables_do_not_hang_on_the_number_of_processes(tmp_path: Path) -> None:
    alone = landed_twice(tmp_path, 1)
    together = landed_twice(tmp_path, 3)
    assert alone[0] == together[0]
    assert alone[0][1].redactions["email"] > 20 and alone[0][1].waiting > 1 and alone[0][2].records > 20
    assert alone[1] == together[1]
    assert alone[2] == together[2]


def test_blocks_are_whole_lines_of_the_whole_file(tmp_path: Path, eager: None) -> None:
    content = b"".join(b"%d %s\r\n" % (number, b"x\xe2\x80\xa8" * (number * 37 % 900)) for number in range(60)) + b"\n\nrest"
    path = tmp_path / "log"
    for written in (content, gzip.compress(content)):
        path.write_bytes(written)
        for start in (0, content.index(b"\n", 9000) + 1):
            found = list(blocks(path, start, 1 + content.count(b"\n", 0, start)))
            assert b"".join(block.raw for block in found) == content[start:] and len(found) > 5
            assert all(block.raw.endswith(b"\n") for block in found[:-1])
            for block in found:
                assert content[block.start :].startswith(block.raw)
                assert block.line == 1 + content.count(b"\n", 0, block.start)
    path.write_bytes(gzip.compress(content, 0)[:-2000])
    *_, last = blocks(path, 0, 1)
    assert last.cut and (not last.raw or last.raw.endswith(b"\n"))
    path.write_bytes(b"one\n" + b"y" * 30_000 + b"\ntwo\n")
    assert list(blocks(path, 0, 1)) == [Block(0, 1, b"one\n"), Block(4, 2, b"", long=True)]


def test_lines_of_every_line_format_can_be_read_by_another_process(tmp_path: Path) -> None:
    names = set[str]()
    for number, (name, content) in enumerate(FILES):
        path = tmp_path / f"{number}"
        path.write_bytes(content)
        pieces = by_name(name).split(path) if name else None
        if name and isinstance(pieces, Lines):
            assert can_be_told((by_name(name), pieces.reader)), name
            names.add(name)
    assert {"recorder", "claude_code", "openai_chat", "litellm", "qwen_cli", "atif"} <= names


def test_little_is_read_without_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_pool, "RowPool", None)
    workspace = make_workspace(tmp_path / "w", "[landing]\nworkers = 2\n")
    assert land(workspace, [write_lines(tmp_path / "log.jsonl", [call(1)])]).records == 1


def test_the_processes_know_no_lake() -> None:
    told = "import sys, pipelines.landing.row_program, pipelines.landing.recorder; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"deltalake", "duckdb", "dagster", "mlflow", "pydantic", "polars", "torch", "httpx", "multiprocessing"}
    assert not heavy & set(done.stdout.split())


def children(pid: int) -> list[int]:
    """Processes that make rows for another one."""
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            is_child = f"\nPPid:\t{pid}\n" in status.read_text(encoding="ascii", errors="replace")
            if is_child and b"row_program" in status.with_name("cmdline").read_bytes():
                found.append(int(status.parent.name))
        except OSError:
            continue
    return found


def lives(pid: int) -> bool:
    try:
        return b"row_program" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def wait_until(holds: object) -> None:
    assert callable(holds)
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int], Path, Path]]:
    """A landing that waits at its first commit, its processes, its workspace and its log."""
    folder, path = tmp_path / "w", write_lines(tmp_path / "log.jsonl", [call(number) for number in range(300)])
    prepare(folder)
    landing = run(folder, [path], 50, NIGHTSHIFT_LANDING__WORKERS="3", NIGHTSHIFT_TEST_POOL_BYTES="0", NIGHTSHIFT_TEST_WAIT="1")
    assert landing.stdout is not None and landing.stdout.readline() == "waiting\n"
    found = children(landing.pid)
    assert len(found) == 2
    yield landing, found, folder, path
    landing.kill()
    landing.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_outlives_its_starter(
    at_work: tuple[subprocess.Popen[str], list[int], Path, Path], how: signal.Signals
) -> None:
    landing, found, folder, path = at_work
    keys = [(folder / ".keys" / name).read_bytes().strip() for name in ("identity", "redaction")]
    for pid in found:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert command and not any(key in command for key in keys)
    landing.send_signal(how)
    wait_until(lambda: not any(lives(pid) for pid in found))
    landing.kill()  # Ctrl-C lets the commit end that is being made, and this one never does
    landing.wait()
    once = make_workspace(folder.parent / "once")
    workspace = Workspace.open(folder)
    for one in (workspace, once):
        land(one, [path], day=DAY)
    assert doctor.digest(workspace) == doctor.digest(once)


@pytest.mark.usefixtures("eager")
def test_a_process_that_dies_is_said_and_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_workspace(tmp_path / "w", "[landing]\nworkers = 3\n")
    path = write_lines(tmp_path / "log.jsonl", [call(number) for number in range(100)])
    make, num_made = row_pool.RowPool.make, 0

    def fatal(pool: row_pool.RowPool, given: object) -> object:
        nonlocal num_made
        num_made += 1
        if num_made == 3:
            for pid in children(os.getpid()):
                os.kill(pid, signal.SIGKILL)
        return make(pool, given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(row_pool.RowPool, "make", fatal)
        with pytest.raises(RowWorkerError, match=r"was ended by SIGKILL .* run the same command again"):
            land(workspace, [path], day=DAY)
    assert not children(os.getpid())
    land(workspace, [path], day=DAY)
    once = make_workspace(tmp_path / "once")
    land(once, [path], day=DAY)
    assert doctor.digest(workspace) == doctor.digest(once)


@pytest.mark.parametrize("step", ["landing/records:before_commit#2", "landing/records:after_commit"])
def test_a_kill_while_others_make_rows_loses_and_doubles_nothing(tmp_path: Path, step: str) -> None:
    folder, once = tmp_path / "w", make_workspace(tmp_path / "once")
    torn = [b"{torn\n"] * 2
    path = write_lines(tmp_path / "log.jsonl", [*map(call, range(80)), *torn, *map(call, range(40, 160)), *torn])
    prepare(folder)
    pool = {"NIGHTSHIFT_LANDING__WORKERS": "2", "NIGHTSHIFT_TEST_POOL_BYTES": "0"}
    killed = run(folder, [path], 30, NIGHTSHIFT_KILL_AT=step, **pool)
    _, errors = killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL, errors
    workspace = Workspace.open(folder)
    assert 0 < workspace.lake.num_rows(RECORDS.name) < 160
    again = run(folder, [path], 30, **pool)
    output, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    land(once, [path], day=DAY)
    assert doctor.digest(Workspace.open(folder)) == doctor.digest(once)
    assert json.loads(output.splitlines()[-1])["quarantined"] == 4
