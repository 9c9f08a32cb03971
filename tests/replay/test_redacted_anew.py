"""A changed rule set reaches what is stored, its text is gone from every file, and no id moves."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import doctor, groups, trajectories
from pipelines.landing import redacted_anew
from pipelines.landing.land import land
from pipelines.replay import replay
from pipelines.schemas import DUPLICATES, GROUPS, JUDGEMENTS, LANES, QUARANTINE, RECORDS, SPLITS, STALE, TABLES, TRAJECTORIES
from pipelines.workspace import KEYS, Workspace
from tests.conftest import make_workspace
from tests.deliver import call, rows_of
from tests.landing.lines import write_lines
from tests.night_rows import checkpoint_row

ROOT = Path(__file__).resolve().parents[2]
RULES = """
[[rule]]
name = "project"
what = "code name of a project"
pattern = "(bluebird-[0-9]+)"
"""
CONFIG = '[redaction]\nrules = "rules.toml"\n'


def said(task: str, text: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": f"task {task} of {text}"}]
    return {"messages": messages, "tools": None}


LINES: list[Any] = [
    call("a/1", task="1", request=said("1", "bluebird-77")),
    call("a/2", task="1", request=said("1", "bluebird-77")),
    call("b/1", task="bluebird-77", request=said("2", "nothing")),
    call("b/2", task="bluebird-77", request=said("2", "nothing")),
    call("c/1", task="3", day=1, request=said("3", "a@example.org and bluebird-77")),
    call("d/1", task="4", day=2, request=said("4", "nothing")),
    b'{"torn": "bluebird-77\n',
]


def take_in(folder: Path, config: str = "") -> Workspace:
    workspace = make_workspace(folder, config)
    (workspace.folder / "rules.toml").write_text(RULES, encoding="utf-8")
    workspace = Workspace.open(folder)
    land(workspace, [write_lines(folder / "logs" / "log.jsonl", LINES)])
    trajectories.build(workspace)
    groups.assign_splits(workspace, "2026-11-30")
    groups.seal(workspace, "2026-11-30", judged=True)
    return workspace


def changed(workspace: Workspace) -> Workspace:
    (workspace.folder / "nightshift.toml").write_text(CONFIG, encoding="utf-8")
    return Workspace.open(workspace.folder)


def ids(workspace: Workspace) -> str:
    """Every id and key in the lake that something is recognised by."""
    named: dict[str, list[str]] = {
        RECORDS.name: ["record_id", "content_id", "bundle_key"],
        QUARANTINE.name: ["record_id"],
        TRAJECTORIES.name: ["trajectory_id", "bundle_key", "task_key", "context_key", "content_id", "record_ids"],
        DUPLICATES.name: ["record_id", "bundle_key", "trajectory_id"],
        GROUPS.name: ["group_id", "trajectory_id", "task_key", "context_key"],
        SPLITS.name: ["task_key", "split"],
    }
    held = {table: [[row[column] for column in columns] for row in rows_of(workspace, table)] for table, columns in named.items()}
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()


def on_disk(workspace: Workspace) -> bytes:
    held = b""
    for path in Path(workspace.lake.root).rglob("*"):
        if path.is_file():
            held += path.read_bytes()
        if path.suffix == ".parquet":
            held += json.dumps(pq.read_table(path).to_pylist(), default=str).encode()
    return held


def test_a_new_rule_reaches_what_is_stored_and_moves_no_id(tmp_path: Path) -> None:
    workspace = take_in(tmp_path / "workspace")
    before = ids(workspace)
    assert replay(workspace).redacted == {}
    assert b"bluebird-77" in on_disk(workspace)
    workspace = changed(workspace)
    shown = replay(workspace)
    assert shown.redacted == {RECORDS.name: 6, QUARANTINE.name: 1} and shown.why_nothing is None
    assert b"bluebird-77" in on_disk(workspace)
    done = replay(workspace, apply=True)
    assert done.redacted == shown.redacted
    held = on_disk(workspace)
    assert b"bluebird-77" not in held and b"[redacted:project:" in held
    assert ids(workspace) == before
    assert rows_of(workspace, STALE.name) == []
    assert groups.violations(workspace).num_rows == 0
    assert not [finding for finding in doctor.check(workspace) if finding.check in ("places", "doubled") and not finding.ok]
    assert replay(workspace, apply=True).why_nothing is not None
    # the same as a lake that knew the rule from the beginning
    fresh = take_in(tmp_path / "fresh", CONFIG)
    assert ids(fresh) == before
    for table in (RECORDS.name, TRAJECTORIES.name, DUPLICATES.name, QUARANTINE.name):
        assert rows_of(fresh, table) == rows_of(workspace, table), table
    assert land(workspace, [workspace.folder / "logs"]).records == 0


def test_slices_of_one_record_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, sliced = (changed(take_in(tmp_path / name)) for name in ("whole", "sliced"))
    replay(whole, apply=True)
    monkeypatch.setattr(redacted_anew, "SLICE_ROWS", 1)
    replay(sliced, apply=True)
    assert doctor.digest(whole) == doctor.digest(sliced)


def test_a_build_while_the_redaction_is_at_work_keeps_no_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = changed(take_in(tmp_path / "workspace"))
    monkeypatch.setattr(redacted_anew, "reached", lambda _: trajectories.build(Workspace.open(workspace.folder)))
    replay(workspace, apply=True)
    monkeypatch.undo()
    assert b"bluebird-77" not in on_disk(workspace)
    assert trajectories.build(workspace).why_nothing is not None


def test_a_build_that_a_redaction_overtakes_builds_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = changed(take_in(tmp_path / "workspace"))
    days = sorted({row["day"] for row in rows_of(workspace, TRAJECTORIES.name)})
    read = trajectories.Building.rows

    def overtaken(self: trajectories.Building, bundle_keys: list[str]) -> Any:
        rows = read(self, bundle_keys)
        monkeypatch.undo()
        replay(Workspace.open(workspace.folder), apply=True)
        return rows

    monkeypatch.setattr(trajectories.Building, "rows", overtaken)
    trajectories.build(workspace, days)
    assert not [row for row in rows_of(workspace, TRAJECTORIES.name) if "bluebird-77" in row["turns"]]
    assert trajectories.build(workspace).why_nothing is not None


STEPS = [
    "redaction:unmade",
    "landing/records:before_commit#2",
    "landing/records:after_commit#2",
    "landing/quarantine:before_commit",
    "trajectories/trajectories:before_commit#2",
    "redaction:vacuumed",
    "landing/records:before_commit#5",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_leaves_no_text_behind_once_it_is_run_again(tmp_path: Path, step: str) -> None:
    workspace = take_in(tmp_path / "workspace")
    before = ids(workspace)
    workspace = changed(workspace)
    program = (
        "import sys; from pipelines.replay import replay; from pipelines.workspace import Workspace;"
        "replay(Workspace.open(sys.argv[1]), apply=True)"
    )
    environment = {**os.environ, "NIGHTSHIFT_KILL_AT": step, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, str(workspace.folder)]
    killed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    replay(workspace, apply=True)
    assert b"bluebird-77" not in on_disk(workspace)
    assert ids(workspace) == before
    assert set(doctor.digest(workspace)) == {*TABLES, doctor.TOTAL}


def test_another_redaction_key_is_noticed_and_moves_no_id(tmp_path: Path) -> None:
    workspace = take_in(tmp_path / "workspace", CONFIG)
    before, held = ids(workspace), on_disk(workspace)
    old = set(re.findall(rb"\[redacted:\w+:[0-9a-f]{12}\]", held))
    assert len(old) == 2  # a project and an address
    (workspace.folder / KEYS / "redaction").write_text("33" * 32 + "\n")
    workspace = Workspace.open(workspace.folder)
    assert replay(workspace).redacted == {RECORDS.name: 6, QUARANTINE.name: 1}
    replay(workspace, apply=True)
    held = on_disk(workspace)
    new = set(re.findall(rb"\[redacted:\w+:[0-9a-f]{12}\]", held))
    # equal secrets still read alike, nothing reads as it did under the key that is gone, and neither key is stored
    assert len(new) == 2 and not new & old
    assert workspace.redaction_key not in held and workspace.redaction_key.hex().encode() not in held
    assert ids(workspace) == before and rows_of(workspace, STALE.name) == []
    assert replay(workspace, apply=True).why_nothing is not None
    assert land(workspace, [workspace.folder / "logs"]).records == 0


def test_judge_replies_are_redacted_and_batches_that_hold_it_are_named(tmp_path: Path) -> None:
    workspace = take_in(tmp_path / "workspace")
    attempt = next(row for row in rows_of(workspace, TRAJECTORIES.name) if "bluebird-77" in row["turns"])
    reply = json.dumps({"scores": {"a": {"explanation": "names bluebird-77", "score": 0.5}}})
    judged = {"judgement_id": "jdg_1", "group_id": "grp_1", "attempt": 1, "status": "ok", "reply": reply, "scores": "{}"}
    workspace.lake.append(JUDGEMENTS.name, pa.Table.from_pylist([judged], schema=JUDGEMENTS.schema))
    lane = {"trajectory_id": attempt["trajectory_id"], "night": "2026-11-30", "lane": "grpo", "batch_id": "bat_1"}
    workspace.lake.append(LANES.name, pa.Table.from_pylist([lane], schema=LANES.schema))
    checkpoint_row(workspace, "ckp_1", 1, batches=["bat_1"])
    assert replay(workspace).holding == []
    workspace = changed(workspace)
    shown = replay(workspace)
    assert shown.redacted == {RECORDS.name: 6, QUARANTINE.name: 1, JUDGEMENTS.name: 1}
    assert shown.holding == ["bat_1"] and [entry["checkpoint"] for entry in shown.holding_checkpoints] == ["ckp_1"]
    replay(workspace, apply=True)
    assert b"bluebird-77" not in on_disk(workspace)
    (row,) = rows_of(workspace, JUDGEMENTS.name)
    assert "[redacted:project:" in row["reply"] and {**row, "reply": reply} == {**dict.fromkeys(row), **judged}
    # the batch was frozen with the text of that time, and is named for ever
    assert replay(workspace).holding == ["bat_1"]
