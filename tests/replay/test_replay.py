"""Replay: what a mended parser changes is shown first and derived then; sealed groups never change and fall stale."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines import doctor, groups, trajectories
from pipelines.doors.lake import Lake
from pipelines.landing import registry
from pipelines.landing.format import Bundle, StoredRecord
from pipelines.landing.land import land
from pipelines.landing.recorder import Recorder
from pipelines.replay import replay
from pipelines.rewards.score import score
from pipelines.schemas import DUPLICATES, GROUPS, REWARDS, STALE, TRAJECTORIES, VERDICTS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call, rows_of
from tests.landing.lines import write_lines
from tests.night_rows import freeze

ROOT = Path(__file__).resolve().parents[2]


class Mended(Recorder):
    """A recorder parser of tomorrow: other outcomes, counts and names of attempts."""

    parser_version = Recorder.parser_version + 1

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        bundle = super().attempts(records)
        changes: dict[str, dict[str, Any]] = {"1": {"outcome": 1.0}, "2": {"num_prompt_tokens": 9}, "3": {"ref": "another"}}
        return Bundle(
            attempts=[dataclasses.replace(attempt, **changes.get(attempt.task_id or "", {})) for attempt in bundle.attempts],
            left=bundle.left,
        )


class Broken(Recorder):
    """One that cannot read attempts of task 4."""

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        if records[0].value["task_id"] == "4":
            raise ValueError("no such task")
        return super().attempts(records)


def use(monkeypatch: pytest.MonkeyPatch, parser: Recorder) -> None:
    monkeypatch.setattr(registry, "FORMATS", tuple(parser if f.name == "recorder" else f for f in registry.FORMATS))


def take_in(workspace: Workspace, lines: list[dict[str, Any]]) -> None:
    land(workspace, [write_lines(workspace.folder / "logs" / "log.jsonl", lines)])
    trajectories.build(workspace)


LINES = [call(f"{task}/{number}", task=task, day=int(task)) for task in "12345" for number in range(3)]


def test_nothing_is_behind_after_a_build(workspace: Workspace) -> None:
    take_in(workspace, LINES)
    found = replay(workspace)
    assert (found.bundles, found.why_nothing) == (0, "every trajectory was made by the parser in force")
    every = replay(workspace, every=True, apply=True)
    assert (every.bundles, every.unchanged, every.changed) == (15, 15, 0)
    assert every.why_nothing == "15 bundle(s) read again give the same rows"
    assert every.versions == {}


def test_a_mended_parser_is_shown_first_and_applied_then(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Broken())
    take_in(workspace, LINES)
    assert workspace.lake.num_rows(TRAJECTORIES.name) == 12
    before, versions = (
        doctor.digest(workspace),
        {name: workspace.lake.version(name) for name in (TRAJECTORIES.name, DUPLICATES.name)},
    )
    use(monkeypatch, Mended())
    shown = replay(workspace)
    assert doctor.digest(workspace) == before
    assert (shown.applied, shown.bundles) == (False, 15)
    # task 3's attempts have another name, so the old ones go; task 4's could not be read
    assert (shown.added, shown.changed, shown.removed, shown.unchanged) == (6, 6, 3, 3)
    assert (shown.readable, shown.unreadable) == (3, 0)
    assert shown.columns == {"outcome": 3, "outcome_logged": 3, "num_prompt_tokens": 3}
    done = replay(workspace, apply=True)
    assert {**vars(done), "applied": False, "versions": {}} == vars(shown)
    assert replay(workspace).why_nothing is not None
    assert not [finding for finding in doctor.check(workspace) if finding.check in ("places", "doubled") and not finding.ok]
    # the same as a lake that never knew another parser
    fresh = make_workspace(workspace.folder.parent / "fresh")
    take_in(fresh, LINES)
    assert rows_of(fresh, TRAJECTORIES.name) == rows_of(workspace, TRAJECTORIES.name)
    assert rows_of(fresh, DUPLICATES.name) == rows_of(workspace, DUPLICATES.name) == []
    # the older version stays readable
    assert _rows_at(workspace.lake, TRAJECTORIES.name, versions[TRAJECTORIES.name] or 0) == 12


def _rows_at(lake: Lake, name: str, version: int) -> int:
    handle = lake.handle(name)
    assert handle is not None
    handle.load_as_version(version)
    return handle.to_pyarrow_dataset().count_rows()


def test_days_and_formats_narrow_it(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    take_in(workspace, LINES)
    use(monkeypatch, Mended())
    assert replay(workspace, format="tau_bench").bundles == 0
    assert replay(workspace, first="2026-11-22", last="2026-11-23").bundles == 6
    replay(workspace, last="2026-11-21", apply=True)
    assert replay(workspace).bundles == 12


def test_groups_with_a_changed_or_removed_member_fall_stale(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    take_in(workspace, LINES)
    groups.assign_splits(workspace, "2026-11-30")
    groups.seal(workspace, "2026-11-30", judged=True)
    sealed = rows_of(workspace, GROUPS.name)
    task_of = {row["group_id"]: row["task_key"] for row in sealed}
    keys = {task: workspace.identity.task_key("sums", task) for task in "12345"}
    use(monkeypatch, Mended())
    shown = replay(workspace)
    # a changed usage count takes the ground from nobody
    assert {task_of[group_id] for group_id in shown.stale_groups} == {keys["1"], keys["3"]}
    replay(workspace, apply=True)
    assert rows_of(workspace, GROUPS.name) == sealed
    reasons = {task_of[row["group_id"]]: row["reason"] for row in rows_of(workspace, STALE.name)}
    assert reasons == {keys["1"]: "member_changed", keys["3"]: "member_removed"}
    # a stale group is known to break I4, and stops no night
    assert groups.violations(workspace).num_rows == 0
    assert replay(workspace, every=True, apply=True).stale_groups == []


def test_slices_give_the_same_as_one(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    take_in(workspace, LINES)
    other = make_workspace(workspace.folder.parent / "other")
    take_in(other, LINES)
    use(monkeypatch, Mended())
    whole = replay(workspace, apply=True)
    monkeypatch.setattr(trajectories, "SLICE_BUNDLES", 2)
    in_slices = replay(other, apply=True)
    assert {**vars(whole), "versions": {}} == {**vars(in_slices), "versions": {}}
    assert doctor.digest(workspace) == doctor.digest(other)


PROGRAM = """
import sys
from pipelines import replay, trajectories
from pipelines.landing import registry
from pipelines.workspace import Workspace
from tests.replay.test_replay import Mended
registry.FORMATS = tuple(Mended() if f.name == "recorder" else f for f in registry.FORMATS)
trajectories.SLICE_BUNDLES = 4
replay.replay(Workspace.open(sys.argv[1]), apply=True)
"""

STEPS = [
    "replay:stale_entered",
    "trajectories/trajectories:before_commit",
    "trajectories/trajectories:after_commit#2",
    "trajectories/duplicates:before_commit#2",
    "trajectories/duplicates:after_commit#3",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_heals_by_running_it_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str
) -> None:
    take_in(workspace, LINES)
    environment = {**os.environ, "NIGHTSHIFT_KILL_AT": step, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(workspace.folder)]
    killed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    use(monkeypatch, Mended())
    trajectories.build(workspace)
    replay(workspace, apply=True)
    fresh = make_workspace(tmp_path / "fresh")
    take_in(fresh, LINES)
    for table in (TRAJECTORIES.name, DUPLICATES.name):  # records keep the version of the parser that landed them
        assert rows_of(workspace, table) == rows_of(fresh, table)


def test_the_command_line_shows_and_applies(workspace: Workspace) -> None:
    take_in(workspace, LINES)
    command = [sys.executable, "-m", "pipelines", "replay", "-w", str(workspace.folder), "--all"]
    told = subprocess.run([*command, "--json", "--from", "2026-11-21"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(told.stdout)["unchanged"] == 15
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "give the same rows" in shown.stdout


def sealed_on(workspace: Workspace, night: str) -> dict[str, str]:
    rows = workspace.lake.read(GROUPS.name).to_pylist()
    return {row["trajectory_id"]: row["group_id"] for row in rows if row["sealed_night"] == night}


class MendedAgain(Recorder):
    """The parser as it was before it was mended, under a new number."""

    parser_version = Recorder.parser_version + 2


def test_members_of_a_stale_group_are_sealed_anew_unless_a_batch_consumed_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(workspace, LINES)
    groups.assign_splits(workspace, "2026-11-30")
    groups.seal(workspace, "2026-11-30", judged=True)
    first = {row["trajectory_id"]: row["group_id"] for row in rows_of(workspace, GROUPS.name)}
    keys = {task: workspace.identity.task_key("sums", task) for task in "12345"}
    trained = {row["group_id"] for row in rows_of(workspace, GROUPS.name) if row["task_key"] == keys["3"]}
    freeze(workspace, "bat_1", groups=sorted(trained))
    use(monkeypatch, Mended())
    replay(workspace, apply=True)
    sealed = groups.seal(workspace, "2026-12-01", judged=True)
    # task 1: the same members, whose outcome is another; task 3: other attempts took the place of those that trained
    assert sealed.groups == 2
    second = sealed_on(workspace, "2026-12-01")
    same = second.keys() & first.keys()
    assert len(same) == 3 and len(second) == 6
    assert all(first[trajectory_id] != second[trajectory_id] for trajectory_id in same)
    assert groups.violations(workspace).num_rows == 0
    assert groups.seal(workspace, "2026-12-02", judged=True).groups == 0
    # what is restored forms a third group; the first stays stale, and what trained once stays where it is
    use(monkeypatch, MendedAgain())
    replay(workspace, apply=True)
    assert groups.seal(workspace, "2026-12-03", judged=True).groups == 1
    third = sealed_on(workspace, "2026-12-03")
    assert third.keys() == same
    assert len({first[min(same)], second[min(same)], third[min(same)]}) == 3
    assert groups.violations(workspace).num_rows == 0


def test_an_attempt_that_changed_is_verified_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = '[[rewards.verifiers]]\nname = "logged"\nkind = "logged_outcome"\n[judge]\ngroups_per_night = 0\n[evaluation]\nheld_out_share = 0.0\n'
    workspace = make_workspace(tmp_path / "workspace", config)
    take_in(workspace, [{**line, "outcome": 0.0} for line in LINES if line["task_id"] == "1"])
    groups.seal(workspace, "2026-11-30", judged=True)
    score(workspace, "2026-11-30")
    use(monkeypatch, Mended())
    replay(workspace, apply=True)
    groups.seal(workspace, "2026-12-01", judged=True)
    score(workspace, "2026-12-01")
    rewards = {row["night"]: row["verifier_score"] for row in rows_of(workspace, REWARDS.name)}
    assert rewards == {"2026-11-30": 0, "2026-12-01": 1_000_000}
    assert [row["times"] for row in rows_of(workspace, VERDICTS.name)].count(0) == 3
