"""A trajectory without a turn does not exist, whatever its format; its records are counted where they went (I1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines import doctor
from pipelines.landing.land import land
from pipelines.landing.registry import FORMATS
from pipelines.landing.tau2_bench import Tau2Bench
from pipelines.schemas import DUPLICATES, RECORDS, TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.deliver import rows_of
from tests.landing.formats.test_hermes import written
from tests.landing.formats.test_tau2_bench import VOICE, results, simulation


def taken_in(workspace: Workspace, name: str, value: Any) -> None:
    path = workspace.folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    land(workspace, [path])


def sound(workspace: Workspace) -> None:
    assert [f.detail for f in doctor.check(workspace) if f.check in ("places", "every_record_in_one_place") and not f.ok] == []


def test_a_voice_run_without_text_is_no_trajectory(workspace: Workspace) -> None:
    spoken = simulation(id="sim-2", messages=None, ticks=[{"agent_chunk": {"role": "assistant", "content": "Hello."}}])
    taken_in(workspace, "results.json", results({**VOICE, "id": "sim-1"}, spoken))
    built = build(workspace)
    assert (built.trajectories, built.left_out) == (1, {"no_turns": 1})
    (row,) = rows_of(workspace, DUPLICATES.name)
    assert (row["kind"], row["trajectory_id"]) == ("no_turns", None)
    assert {row["num_turns"] for row in rows_of(workspace, TRAJECTORIES.name)} == {2}  # its policy, and what was said
    sound(workspace)
    assert build(workspace).why_nothing is not None


def test_a_version_with_text_that_comes_later_makes_it_one(workspace: Workspace) -> None:
    taken_in(workspace, "one.json", VOICE)
    assert build(workspace).left_out == {"no_turns": 1}
    taken_in(workspace, "two.json", simulation())
    built = build(workspace)
    assert built.trajectories == 1
    assert {row["kind"] for row in rows_of(workspace, DUPLICATES.name)} == {"superseded"}
    sound(workspace)


def test_what_a_silent_attempt_stood_for_stands_for_nothing(workspace: Workspace) -> None:
    taken_in(workspace, "one.json", VOICE)
    taken_in(workspace, "two.json", {**VOICE, "reward_info": {"reward": 0.0}})
    assert build(workspace).trajectories == 0
    kinds = sorted((row["kind"], row["trajectory_id"]) for row in rows_of(workspace, DUPLICATES.name))
    assert kinds == [("no_turns", None), ("superseded", None)]
    sound(workspace)


def test_the_rule_is_of_every_format(workspace: Workspace) -> None:
    path = written(workspace.folder / "c.json", messages=[], system_prompt=None)
    land(workspace, [path])
    assert build(workspace).trajectories == 0
    assert [row["kind"] for row in rows_of(workspace, DUPLICATES.name)] == ["no_turns"]
    sound(workspace)


def test_a_child_of_a_silent_attempt_has_no_parent(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    class Family(Tau2Bench):
        """Makes a second attempt that comes from the first."""

        def attempts(self, records: Any) -> Any:
            import dataclasses

            bundle = super().attempts(records[:1])
            child = dataclasses.replace(
                bundle.attempts[0],
                ref="child",
                parent_ref="",
                link="subagent",
                turns=[{"role": "user", "content": "x", "sampled": False, "call": None}],
            )
            return dataclasses.replace(bundle, attempts=[bundle.attempts[0], child])

    monkeypatch.setattr("pipelines.landing.registry.FORMATS", tuple(Family() if f.name == "tau2_bench" else f for f in FORMATS))
    taken_in(workspace, "one.json", VOICE)
    build(workspace)
    (row,) = rows_of(workspace, TRAJECTORIES.name)
    assert (row["num_turns"], row["parent_trajectory_id"], row["link"]) == (1, None, "subagent")
    assert workspace.lake.num_rows(RECORDS.name) == 1 and rows_of(workspace, DUPLICATES.name) == []
