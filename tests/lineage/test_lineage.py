"""Lineage both ways at row level (I9), from the lake and the frozen batches alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.errors import LakeError, UnknownReferenceError
from pipelines.groups import seal
from pipelines.lineage import ask, backward, edges, forward, why
from pipelines.schemas import JUDGEMENTS, QUARANTINE, RECORDS, REWARDS, VERDICTS
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.deliver import call, deliver
from tests.lineage.conftest import NIGHT, POLICY, freeze, group_of, lines, register

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkpoint_leads_back_to_its_log_lines(story: Workspace) -> None:
    found = backward(story, f"{POLICY}@2")
    group_id, trajectories = group_of(story, "b")
    assert found == {
        "reference": f"{POLICY}@2",
        "checkpoint": "ckp_2",
        "policy_version": f"{POLICY}@2",
        "night": NIGHT,
        "run_id": "run_2",
        "parents": [
            {"checkpoint": "ckp_1", "policy_version": f"{POLICY}@1", "night": NIGHT, "batches": ["bat_1"]},
            {"checkpoint": "base", "policy_version": f"{POLICY}@0", "night": None, "batches": []},
        ],
        "batches": ["bat_2"],
        "groups": [group_id],
        "trajectories": trajectories,
        "sources": lines(4, 6),
    }
    for ref in (f"{POLICY}@champion", "ckp_2"):
        assert {**backward(story, ref), "reference": found["reference"]} == found


def test_every_reference_leads_to_the_same_lines(story: Workspace) -> None:
    group_id, trajectories = group_of(story, "a")
    for ref in (f"{POLICY}@1", "bat_1", group_id):
        found = backward(story, ref)
        assert (found["batches"], found["groups"], found["trajectories"]) == (["bat_1"], [group_id], trajectories)
        assert found["sources"] == lines(1, 3)
    learned = [(entry["checkpoint"], entry["through"]) for entry in backward(story, group_id)["checkpoints"]]
    assert learned == [("ckp_1", "direct"), ("ckp_2", "parent")]
    one = backward(story, trajectories[0])
    assert (one["groups"], one["batches"], len(one["sources"])) == ([group_id], ["bat_1"], 1)


def test_a_line_leads_forward_to_every_checkpoint_that_learned_from_it(story: Workspace) -> None:
    group_id, trajectories = group_of(story, "a")
    for file in ("logs/calls.jsonl", str(story.folder / "logs" / "calls.jsonl")):
        found = ask(story, f"{file}:2")
        assert found["trajectories"][0] in trajectories
        assert (found["file"], found["groups"], found["batches"]) == ("logs/calls.jsonl", [group_id], ["bat_1"])
        assert [(c["checkpoint"], c["through"]) for c in found["checkpoints"]] == [("ckp_1", "direct"), ("ckp_2", "parent")]


def test_both_directions_name_the_same_edges(story: Workspace) -> None:
    held = edges(story, "ckp_1")
    assert held.column_names == ["checkpoint_id", "batch_id", "group_id", "trajectory_id", "record_id", "source", "line"]
    for edge in held.to_pylist():
        found = forward(story, edge["source"], edge["line"])
        assert found["records"] == [edge["record_id"]]
        assert found["trajectories"] == [edge["trajectory_id"]]
        assert found["batches"] == [edge["batch_id"]]
        assert "ckp_1" in [entry["checkpoint"] for entry in found["checkpoints"]]
    assert edges(story, "ckp_9", ["bat_1"]).drop(["checkpoint_id"]) == held.drop(["checkpoint_id"])


def test_a_member_that_the_batch_left_out_is_not_in_its_lineage(story: Workspace) -> None:
    deliver(story, [call(f"c{number}", task="c", outcome=float(number % 2)) for number in range(3)], "logs/c.jsonl")
    build(story)
    seal(story, NIGHT, judged=True)
    group_id, (first, second, left_out) = group_of(story, "c")
    freeze(story, "bat_3", group_id, [first, second])
    register(story, 4, 2, ["bat_3"])
    assert backward(story, "ckp_4")["trajectories"] == sorted([first, second])
    assert backward(story, left_out)["checkpoints"] == []


def test_the_lanes_answer_where_a_batch_folder_is_gone(story: Workspace) -> None:
    whole = edges(story, "ckp_1")
    shutil.rmtree(story.batches / "bat_1")
    assert edges(story, "ckp_1") == whole


def test_the_base_model_learned_from_nothing(story: Workspace) -> None:
    found = backward(story, f"{POLICY}@0")
    assert (found["checkpoint"], found["parents"], found["sources"]) == ("base", [], [])


def test_a_line_that_is_only_a_duplicate_leads_to_what_stands_for_it(story: Workspace) -> None:
    rows = story.lake.read(RECORDS.name).to_pylist()
    (record,) = [row for row in rows if row["line"] == 1]
    again = {**record, "record_id": "rec_z", "source": "logs/again.jsonl"}
    story.lake.append(RECORDS.name, pa.Table.from_pylist([again], schema=RECORDS.schema))
    build(story)
    found = forward(story, "logs/again.jsonl", 1)
    assert found["duplicates"] == ["rec_z"]
    assert found["trajectories"] == forward(story, "logs/calls.jsonl", 1)["trajectories"]


def test_a_line_in_quarantine_says_so(story: Workspace) -> None:
    bad = {"record_id": "rec_q", "day": NIGHT, "source": "logs/bad.jsonl", "line": 7, "reason": "bad_json"}
    story.lake.append(QUARANTINE.name, pa.Table.from_pylist([bad], schema=QUARANTINE.schema))
    found = forward(story, "logs/bad.jsonl", 7)
    assert (found["quarantined"], found["trajectories"]) == (["bad_json"], [])


@pytest.mark.parametrize(
    "ref", [f"{POLICY}@9", f"{POLICY}@none", "other@1", "bat_x", "grp_x", "trj_x", "ckp_x", "logs/calls.jsonl:99", "nothing"]
)
def test_an_unknown_reference_is_refused(ref: str, story: Workspace) -> None:
    with pytest.raises(UnknownReferenceError):
        ask(story, ref)


def test_why_tells_the_whole_story(story: Workspace) -> None:
    group_id, trajectories = group_of(story, "a")
    mine = forward(story, "logs/calls.jsonl", 1)["trajectories"][0]
    verdict = {"trajectory_id": mine, "verifier": "v", "verifier_hash": "h", "verifier_score": 0, "night": NIGHT}
    story.lake.append(VERDICTS.name, pa.Table.from_pylist([verdict], schema=VERDICTS.schema))
    reward = {"trajectory_id": mine, "group_id": group_id, "rubric_hash": "r", "reward_key": "k", "reward": 0, "sequence": 1}
    story.lake.append(REWARDS.name, pa.Table.from_pylist([reward], schema=REWARDS.schema))
    judgement = {"judgement_id": "j", "group_id": group_id, "attempt": 1, "status": "ok", "scores": json.dumps({mine: 700_000})}
    story.lake.append(JUDGEMENTS.name, pa.Table.from_pylist([judgement], schema=JUDGEMENTS.schema))
    found = why(story, "logs/calls.jsonl:1")
    assert found == why(story, mine)
    assert found["trajectory"]["trajectory_id"] == mine
    assert (found["sources"], found["split"], found["eligible_for"]) == (lines(1, 1), "train", "grpo")
    assert found["group"]["group_id"] == group_id
    assert sorted([mine, *found["group"]["siblings"]]) == trajectories
    assert [entry["verifier_score"] for entry in found["verdicts"]] == [0]
    assert [entry["reward"] for entry in found["rewards"]] == [0]
    assert [entry["ruler_score"] for entry in found["judgements"]] == [700_000]
    assert [entry["batch_id"] for entry in found["lanes"]] == ["bat_1"]
    assert (found["batches"], [entry["checkpoint"] for entry in found["checkpoints"]]) == (["bat_1"], ["ckp_1", "ckp_2"])
    json.dumps(found)


def test_a_beginning_of_an_id_names_it_and_one_of_several_names_them(story: Workspace) -> None:
    group_id, trajectories = group_of(story, "a")
    whole = trajectories[0]
    for ref in (whole[:16], whole[:16] + "…", whole[:16] + "..."):
        assert why(story, ref) == why(story, whole)
        assert ask(story, ref) == ask(story, whole)
    assert ask(story, group_id[:12])["groups"] == [group_id]
    register(story, 10, None, [])
    assert ask(story, "ckp_1")["checkpoint"] == "ckp_1"
    (story.batches / "bat_1x").mkdir()  # frozen and not consumed yet
    several = {
        "trj_": r"6 ids begin with trj_: (trj_\w{32}, ){4}trj_\w{32} and 1 more; write more",
        "bat_": "bat_1, bat_1x, bat_2; ",
    }
    for ref, told in several.items():
        with pytest.raises(UnknownReferenceError, match=told):
            ask(story, ref)


def test_why_of_what_was_never_grouped(story: Workspace) -> None:
    deliver(story, [call("lonely", task="z")], "logs/z.jsonl")
    build(story)
    found = why(story, "logs/z.jsonl:1")
    assert (found["group"], found["split"], found["eligible_reason"]) == (None, None, "split_pending")
    with pytest.raises(UnknownReferenceError):
        why(story, "trj_x")


def test_needs_neither_dagster_nor_mlflow(story: Workspace) -> None:
    program = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {{"dagster", "mlflow", "torch", "litellm"}}:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
from pipelines.lineage import backward
from pipelines.workspace import Workspace
assert len(backward(Workspace.open({str(story.folder)!r}), "{POLICY}@champion")["sources"]) == 3
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_damaged_batch_is_named_and_one_that_is_gone_is_told_by_its_groups(story: Workspace) -> None:
    (batch_id, *_) = whole = backward(story, f"{POLICY}@1")["batches"]
    assert whole
    rows = story.batches / batch_id / "rows.parquet"
    rows.write_bytes(rows.read_bytes()[:-20])
    with pytest.raises(LakeError, match=rf"batch {batch_id}: .*cannot be read.*move the folder away"):
        backward(story, f"{POLICY}@1")
    shutil.rmtree(rows.parent)
    assert backward(story, f"{POLICY}@1")["batches"] == whole
