"""Another rule names what is stored anew, after a replay; what was held out under its old name never trains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines import doctor, groups, invariants
from pipelines.groups import eligibility
from pipelines.ingest import ingest
from pipelines.landing.land import land
from pipelines.lineage import why
from pipelines.replay import replay
from pipelines.schemas import GROUPS, RENAMED, SPLITS, STALE, TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call, rows_of
from tests.landing.lines import write_lines
from tests.night_rows import freeze
from tests.trajectories.test_task_rules import by_attempt, unnamed

ROOT = Path(__file__).resolve().parents[2]
NIGHT = "2026-11-30"
LATER = "2100-01-01"
"""A night of no test's day: what is taken in today is sealed under the date of today."""
NONE_HELD = "[evaluation]\nheld_out_share = 0.0\n"
HALF_HELD = "[evaluation]\nheld_out_share = 0.5\n"
RULE = '[groups]\ntask = "$.metadata.ticket"\n'


def attempt(name: str, words: str, ticket: str) -> dict[str, Any]:
    return unnamed(name, words, metadata={"ticket": ticket})


def take_in(workspace: Workspace, lines: list[dict[str, Any]], name: str = "log") -> dict[str, Any]:
    return ingest(workspace, [write_lines(workspace.folder / "logs" / f"{name}.jsonl", lines)])


def under(workspace: Workspace, config: str) -> Workspace:
    return make_workspace(workspace.folder, config)


def splits_of(workspace: Workspace) -> dict[str, str]:
    """By attempt."""
    told = {row["trajectory_id"]: row["split"] for row in eligibility(workspace).to_pylist()}
    return {name: told[row["trajectory_id"]] for name, row in by_attempt(workspace).items()}


def task_finding(workspace: Workspace) -> doctor.Finding:
    return next(finding for finding in doctor.check(workspace) if finding.check == "tasks")


LINES = [
    attempt(f"{words}{number}", words, ticket) for words, ticket in (("p", "1"), ("q", "1"), ("r", "2")) for number in range(2)
]


def test_a_changed_rule_is_said_shown_and_applied(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", NONE_HELD)
    take_in(workspace, LINES)
    groups.seal(workspace, NIGHT, judged=True)
    first = {row["trajectory_id"]: row["group_id"] for row in rows_of(workspace, GROUPS.name)}
    rows = by_attempt(workspace)
    consumed = first[rows["r0"]["trajectory_id"]]
    freeze(workspace, "bat_1", groups=[consumed])
    assert task_finding(workspace).ok

    workspace = under(workspace, NONE_HELD + RULE)
    assert "have changed since 6 trajectories were built; `nightshift replay`" in task_finding(workspace).detail
    taken = take_in(workspace, [attempt("s0", "s", "2")], "more")
    assert (taken["named_otherwise"], taken["named_by"]) == (6, {"rule": 1})
    shown = replay(workspace)
    assert (shown.bundles, shown.changed) == (6, 6)
    assert shown.columns == {"task_key": 6, "task_source": 6, "task_id": 6}
    assert set(shown.stale_groups) == set(first.values())

    replay(workspace, apply=True)
    assert task_finding(workspace).ok and replay(workspace).why_nothing is not None
    assert [(row["group_id"], row["reason"]) for row in rows_of(workspace, STALE.name)] == [
        (group, "member_changed") for group in sorted(set(first.values()))
    ]
    groups.seal(workspace, LATER, judged=True)
    names = {row["trajectory_id"]: name for name, row in by_attempt(workspace).items()}
    second = {names[row["trajectory_id"]] for row in workspace.lake.read(GROUPS.name).to_pylist() if row["sealed_night"] == LATER}
    assert second == {"p0", "p1", "q0", "q1"}  # what a batch consumed stays where it is, and s0 waits
    assert groups.violations(workspace).num_rows == 0
    fresh = make_workspace(tmp_path / "fresh", NONE_HELD + RULE)
    land(fresh, [write_lines(fresh.folder / "logs" / "log.jsonl", [*LINES, attempt("s0", "s", "2")])])
    build(fresh)
    assert rows_of(fresh, TRAJECTORIES.name) == rows_of(workspace, TRAJECTORIES.name)
    assert rows_of(fresh, RENAMED.name) == []


def test_a_new_fingerprint_alone_makes_no_group_stale(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", NONE_HELD)
    take_in(workspace, LINES)
    groups.seal(workspace, NIGHT, judged=True)
    workspace = under(workspace, NONE_HELD + '[groups]\nvolatile = ["times"]\n')
    done = replay(workspace, apply=True)
    assert (done.bundles, done.changed, done.unchanged, done.stale_groups) == (6, 0, 6, [])
    assert task_finding(workspace).ok
    assert rows_of(workspace, RENAMED.name) == rows_of(workspace, STALE.name) == []


WORDS = [f"request {number}" for number in range(16)]


def test_what_was_held_out_stays_so_under_its_new_name(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", HALF_HELD)
    # ticket 0 to 7 join two requests each; the others rename one
    lines = [attempt(f"a{n}.{k}", words, f"t{n // 2 if n < 8 else n}") for n, words in enumerate(WORDS) for k in range(2)]
    take_in(workspace, lines)
    before = splits_of(workspace)
    assert set(before.values()) == {"train", "held_out"}

    workspace = under(workspace, HALF_HELD + RULE)
    # an attempt that lands before the replay may be at a task that is held out: it gets no split yet
    late = [attempt(f"late{n}", f"late words {n}", f"t{n // 2 if n < 8 else n}") for n in range(16)]
    take_in(workspace, late, "late")
    waiting = splits_of(workspace)
    assert {waiting[f"late{n}"] for n in range(16)} == {None}
    assert {name: waiting[name] for name in before} == before

    replay(workspace, apply=True)
    groups.assign_splits(workspace, NIGHT)
    after = splits_of(workspace)
    assert [name for name in before if before[name] == "held_out" and after[name] != "held_out"] == []
    for n in range(8, 16):
        assert after[f"a{n}.0"] == after[f"late{n}"] == before[f"a{n}.0"]
    for n in range(0, 8, 2):  # a task that joins both is held out
        joined = {before[f"a{n}.0"], before[f"a{n + 1}.0"]}
        assert after[f"a{n}.0"] == after[f"late{n}"] == ("held_out" if "held_out" in joined else "train")
    assert {row["source"] for row in rows_of(workspace, SPLITS.name)} == {"drawn", "inherited"}
    assert invariants.held_out_stays_out(workspace).num_broken == 0
    # a rule that goes again changes nothing of it
    workspace = under(workspace, HALF_HELD)
    replay(workspace, apply=True)
    groups.assign_splits(workspace, NIGHT)
    last = splits_of(workspace)
    assert [name for name in before if "held_out" in (before[name], after[name]) and last[name] != "held_out"] == []


def test_an_attempt_that_was_held_out_stays_so_at_a_task_that_trains_already(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w", HALF_HELD)
    take_in(workspace, [attempt(f"a{n}", words, "ticket") for n, words in enumerate(WORDS)])
    before = splits_of(workspace)
    key = workspace.identity.task_key("sums", "ticket")
    row = {"task_key": key, "split": "train", "source": "drawn", "day": NIGHT}
    workspace.lake.append_missing(SPLITS.name, pa.Table.from_pylist([row], schema=SPLITS.schema))
    take_in(workspace, [call("named", task="ticket")], "named")
    workspace = under(workspace, HALF_HELD + RULE)
    replay(workspace, apply=True)
    take_in(workspace, [attempt("new", "words", "ticket")], "new")
    assert {row["task_key"] for row in rows_of(workspace, TRAJECTORIES.name)} == {key}
    after = splits_of(workspace)
    assert after == {**before, "named": "train", "new": "train"}
    held = next(name for name in before if before[name] == "held_out")
    told = why(workspace, by_attempt(workspace)[held]["trajectory_id"])
    assert (told["split"], told["eligible_for"]) == ("held_out", "held_out")


PROGRAM = """
import sys
from pipelines import replay, trajectories
from pipelines.workspace import Workspace
trajectories.SLICE_BUNDLES = 2
replay.replay(Workspace.open(sys.argv[1]), apply=True)
"""


@pytest.mark.parametrize(
    "step",
    [
        "trajectories/renamed:before_commit",
        "trajectories/renamed:after_commit",
        "replay:stale_entered",
        "trajectories/trajectories:after_commit#2",
    ],
)
def test_killed_anywhere_the_next_replay_forgets_no_former_name(tmp_path: Path, step: str) -> None:
    killed, whole = (make_workspace(tmp_path / name, HALF_HELD) for name in ("killed", "whole"))
    for workspace in (killed, whole):
        take_in(workspace, LINES)
        under(workspace, HALF_HELD + RULE)
    environment = {**os.environ, "NIGHTSHIFT_KILL_AT": step, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(killed.folder)]
    child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    digests = []
    for folder in (killed.folder, whole.folder):
        workspace = Workspace.open(folder)
        replay(workspace, apply=True)
        groups.seal(workspace, NIGHT, judged=True)
        assert workspace.lake.num_rows(RENAMED.name) == 6
        digests.append(doctor.digest(workspace))
    assert digests[0] == digests[1]


def test_a_late_record_renames_nothing(tmp_path: Path) -> None:
    """What an attempt was called before it was whole depends on the order of delivery."""
    workspace = make_workspace(tmp_path / "w", RULE)
    first = unnamed("a", "words")
    later = [*first["request"]["messages"], {"role": "assistant", "content": "4"}, {"role": "user", "content": "and?"}]
    goes_on = {"request": {"messages": later, "tools": None}, "metadata": {"ticket": "1"}}
    second = call("a", number=1, **{"task_id": None, **goes_on})
    take_in(workspace, [first], "1")
    (before,) = rows_of(workspace, TRAJECTORIES.name)
    take_in(workspace, [second], "2")
    (after,) = rows_of(workspace, TRAJECTORIES.name)
    assert before["trajectory_id"] == after["trajectory_id"] and before["task_key"] != after["task_key"]
    assert rows_of(workspace, RENAMED.name) == []
