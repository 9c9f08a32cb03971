"""`why` and `lineage FILE:LINE` in words: every stage is told, and every fate of a line."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pipelines import cli, story, terminal, words
from pipelines.lineage import backward, why
from pipelines.schemas import JUDGEMENTS, LANES, REWARDS, TRAJECTORIES, VERDICTS, TableSpec
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.deliver import call, deliver
from tests.lineage.conftest import NIGHT, group_of
from tests.sealed import Logged, seal_groups


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.console, "width", 300)


def append(workspace: Workspace, spec: TableSpec, **row: object) -> None:
    workspace.lake.append(spec.name, pa.Table.from_pylist([row], schema=spec.schema))


def test_each_stage_is_told_in_words(lake: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    group_id, (mine, *siblings) = group_of(lake, "a")
    append(lake, VERDICTS, trajectory_id=mine, verifier="tests", verifier_hash="h", verifier_score=500_000, night=NIGHT)
    append(lake, VERDICTS, trajectory_id=mine, verifier="shape", verifier_hash="h", reason="crashed", night=NIGHT)
    scored = {"trajectory_id": mine, "group_id": group_id, "rubric_hash": "r", "rule": "tests_first", "night": NIGHT}
    append(lake, REWARDS, **scored, reward_key="k", reward=510_000, sequence=1)
    append(lake, REWARDS, **scored, reward_key="l", reward=None, reason="judge_failed", sequence=2)
    judged = {"group_id": group_id, "judge": "referee", "attempt": 1}
    append(lake, JUDGEMENTS, **judged, judgement_id="j", status="ok", scores=json.dumps({mine: 700_000}))
    append(lake, JUDGEMENTS, **judged, judgement_id="k", status="bad_reply")
    later = {"trajectory_id": mine, "night": "2026-11-21", "lane": "excluded", "lane_reason": "consumed", "group_id": group_id}
    append(lake, LANES, **later)
    story.story(why(lake, mine))
    told = " ".join(capsys.readouterr().out.split())
    for said in (
        "From logs/calls.jsonl:",
        "read as format recorder",
        "a trajectory of 3 turns, 1 of them sampled by nightshift-agent@0, with the sampler's token ids and logprobs",
        "An attempt at task a of sums",
        "in the split train",
        f"In group {group_id} with 2 siblings, because they are attempts at the same task under the same context",
        f"Sealed {NIGHT} since a night scored what was there. Siblings: {', '.join(siblings)}.",
        "Verifier tests gave 0.5.",
        "Verifier shape failed (crashed).",
        "The judge referee gave 0.7.",
        "The judge referee gave no score (bad_reply).",
        f"Reward 0.51 under tests_first, night {NIGHT}.",
        f"No reward under tests_first, night {NIGHT} (judge_failed: the judge gave no usable answer).",
        f"may be used for grpo (exact_tokens: {words.ELIGIBLE['exact_tokens']})",
        f"Night 2026-11-21: not used (consumed: {words.LANE['consumed']}).",
        "Frozen into bat_1.",
        "nightshift-agent@1 (ckp_1, night 2026-11-20) learned from it.",
        "nightshift-agent@2 (ckp_2, night 2026-11-20) learned from it through a parent.",
        "batches.consumed",
    ):
        assert said in told


def test_what_was_never_grouped_says_why(lake: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    deliver(lake, [call("lonely", task="z"), call("broken", task="y", fault="timeout")], "logs/z.jsonl")
    build(lake)
    story.story(why(lake, "logs/z.jsonl:1"))
    told = " ".join(capsys.readouterr().out.split())
    assert "In no group: it waits for siblings" in told and "No night has sorted it yet." in told
    assert "In no batch." in told and "No checkpoint learned from it." in told
    story.story(why(lake, "logs/z.jsonl:2"))
    told = " ".join(capsys.readouterr().out.split())
    assert f"timeout: {words.FAULT['timeout']}" in told and f"In no group: harness_fault: {words.LANE['harness_fault']}" in told


def test_where_an_attempt_comes_from_is_told(lake: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    content = why(lake, group_of(lake, "a")[1][0])
    linked = {"parent_trajectory_id": "trj_p", "link": "branch", "num_shared_turns": 1, "num_gaps": 2, "purpose": "top_up"}
    assert linked.keys() <= set(TRAJECTORIES.schema.names)
    outcome = {"outcome": 250_000, "outcome_logged": -0.5, "outcome_source": "reward"}
    story.story({**content, "trajectory": {**content["trajectory"], **linked, **outcome}})
    told = " ".join(capsys.readouterr().out.split())
    assert "It comes from trj_p and shares its first 1 turn (branch: this one goes on from its middle)." in told
    assert "2 assistant turns in its prompts" in told and "It was run as top_up." in told
    assert "The log gives it 0.25 (reward: -0.5)." in told


def test_an_anchor_is_told_on_both_sides(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    ids = seal_groups(workspace, {"t": [Logged("a"), Logged("b"), Logged("c", policy_version=None, role="anchor")]})["t"]
    content = why(workspace, ids[0])
    assert (content["group"]["siblings"], content["group"]["anchors"], content["anchor_of"]) == ([ids[1]], [ids[2]], [])
    group_id = content["group"]["group_id"]
    story.story(content)
    assert f"Beside them as a reference, outside all numbers: {ids[2]}." in " ".join(capsys.readouterr().out.split())
    content = why(workspace, ids[2])
    assert (content["group"], content["anchor_of"]) == (None, [group_id])
    story.story(content)
    told = " ".join(capsys.readouterr().out.split())
    assert "In no group" in told and f"The anchor of group {group_id}: shown there, counted nowhere." in told
    assert backward(workspace, group_id)["trajectories"] == sorted(ids[:2])
    assert backward(workspace, ids[2])["groups"] == []


@pytest.mark.parametrize(
    ("piece", "told"),
    [
        ({"became": "trajectory", "trajectory_id": "trj_1"}, "It is part of trj_1."),
        ({"became": "duplicate", "reason": "exact", "trajectory_id": "trj_1"}, "(exact: a copy); trj_1 stands for it."),
        ({"became": "duplicate", "reason": "unanswered"}, "(unanswered: no call to the model answered it)."),
        ({"became": "skipped", "reason": "masked"}, "It was skipped (masked: its own harness took it out"),
        ({"became": "quarantined", "reason": "bad_json", "detail": "at 3"}, "The parser said: at 3."),
        ({"became": "waiting"}, "no trajectory is made of it yet"),
    ],
)
def test_each_fate_of_a_line_is_told(capsys: pytest.CaptureFixture[str], piece: dict, told: str) -> None:
    whole = {"record_id": "rec_1", "line": 3, "reason": None, "detail": None, "trajectory_id": None, **piece}
    story.line({"file": "log", "line": 5, "became": [whole]})
    said = capsys.readouterr().out
    assert said.startswith("log:5: rec_1 begins at line 3 and holds it.\n") and told in said


def test_the_commands_tell_it(lake: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (mine, *_) = group_of(lake, "a")[1]
    for arguments, said in ((["why", mine[:12]], "In group grp_"), (["lineage", "logs/calls.jsonl:1"], "begins there.")):
        monkeypatch.setattr("sys.argv", ["nightshift", *arguments, "-w", str(lake.folder)])
        with pytest.raises(SystemExit):
            cli.main()
        assert said in capsys.readouterr().out
