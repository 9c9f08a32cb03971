from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import batches
from pipelines.batch_rows import hashes_of
from pipelines.batches import freeze, pending
from pipelines.groups import seal
from pipelines.reports import Frozen
from pipelines.rewards.score import score
from pipelines.schemas import CHECKPOINTS, CONSUMED, LANES, TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call as logged
from tests.deliver import deliver, rows_of
from tests.sealed import CONFIG, Logged, call, fake_model, seal_groups
from trainer.contract import BatchManifest, advantages

ROOT = Path(__file__).resolve().parents[2]
NIGHT, NEXT = "2026-11-20", "2026-11-21"
MIXED = [Logged("good", 1.0), Logged("bad", 0.0), Logged("fine", 1.0), Logged("poor", 0.5)]
EQUAL = [Logged("a", 1.0), Logged("b", 1.0)]


def prepare(folder: Path, more: str = "") -> Workspace:
    return make_workspace(folder, CONFIG.format(model=fake_model(folder / "toy-model")) + more)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return prepare(tmp_path / "workspace")


def night(workspace: Workspace, tasks: dict[str, Any], day: str = NIGHT, **more: Any) -> tuple[dict[str, list[str]], Frozen]:
    ids = seal_groups(workspace, tasks, night=day, **more)
    score(workspace, day)
    return ids, freeze(workspace, day)


def lanes(workspace: Workspace, day: str = NIGHT) -> dict[str, tuple[str, str]]:
    rows = workspace.lake.read(LANES.name).to_pylist()
    return {row["trajectory_id"]: (row["lane"], row["lane_reason"]) for row in rows if row["night"] == day}


def batch(workspace: Workspace, batch_id: str) -> tuple[BatchManifest, pa.Table]:
    folder = workspace.batches / batch_id
    manifest = BatchManifest.read(folder)
    manifest.verify_rows(folder)
    return manifest, pq.read_table(folder / "rows.parquet")


def consumed(workspace: Workspace) -> list[dict[str, Any]]:
    rows = workspace.lake.read(CONSUMED.name).to_pylist()
    return sorted(rows, key=lambda row: (row["night"], row["batch_id"], row["group_id"]))


def checkpoint(workspace: Workspace, batch_ids: list[str], day: str = NIGHT) -> None:
    row = {
        "checkpoint_id": f"ckp_{day}",
        "policy": "agent",
        "version": 1,
        "batches": batch_ids,
        "night": day,
        "path": f"runs/{day}",
        "marks": [],
    }
    workspace.lake.append(CHECKPOINTS.name, pa.Table.from_pylist([row], schema=CHECKPOINTS.schema))


def test_a_group_with_spread_becomes_rows_and_everything_else_a_reason(workspace: Workspace) -> None:
    tasks = {
        "mixed": MIXED,
        "equal": EQUAL,
        "untested": [Logged("a"), Logged("b")],
        "partly": [Logged("a", 1.0), Logged("b", 0.0), Logged("c")],
        "faulty": [Logged("a", 1.0), Logged("b", None, fault="timeout")],
        "held": MIXED,
        "audited": MIXED,
        "foreign": [Logged("a", 1.0, policy_version=None), Logged("b", 0.0, policy_version=None)],
        "foreign_failed": [Logged("a", 0.0, policy_version=None), Logged("b", 0.0, policy_version=None)],
        "unknown_version": [Logged("a", 1.0, policy_version="agent@7"), Logged("b", 0.0, policy_version="agent@7")],
    }
    ids, frozen = night(workspace, tasks, splits={"held": "held_out", "audited": "audit"})
    sorted_into = lanes(workspace)
    reasons = {task: [sorted_into[i] for i in members] for task, members in ids.items()}
    assert reasons == {
        "mixed": [("grpo", "trained")] * 4,
        "equal": [("excluded", "no_spread")] * 2,
        "untested": [("excluded", "too_few")] * 2,
        "partly": [("grpo", "trained"), ("grpo", "trained"), ("excluded", "no_verdict")],
        "faulty": [("excluded", "no_siblings"), ("excluded", "harness_fault")],
        "held": [("held_out", "held_out_task")] * 4,
        "audited": [("audit", "audit_task")] * 4,
        "foreign": [("sft", "lane_off"), ("excluded", "not_passed")],
        "foreign_failed": [("excluded", "all_fail")] * 2,
        "unknown_version": [("excluded", "unknown_policy_version")] * 2,
    }
    assert sum(frozen.lanes.values()) == sum(frozen.reasons.values()) == sum(len(members) for members in ids.values())
    assert (frozen.groups, frozen.trajectories, frozen.rows, frozen.sampled_tokens) == (2, 6, 6, 12)
    (batch_id,) = frozen.batch_ids
    manifest, rows = batch(workspace, batch_id)
    assert (manifest.num_rows, manifest.num_trajectories, manifest.num_sampled_tokens) == (6, 6, 12)
    assert (manifest.base_model, manifest.lane, manifest.night) == ("toy-model", "grpo", NIGHT)
    assert manifest.groups == sorted(row["group_id"] for row in consumed(workspace))
    assert hashes_of(rows, identity=workspace.identity, generations=dict.fromkeys(manifest.groups, 0)) == manifest.row_hashes
    listed = rows.select(["group_id", "trajectory_id", "turn"]).to_pylist()
    assert listed == sorted(listed, key=lambda row: tuple(row.values()))
    found = {row["trajectory_id"]: row["advantage"] for row in rows.to_pylist()}
    expected = advantages([1_000_000, 0, 1_000_000, 500_000])
    assert [found[i] for i in ids["mixed"]] == expected
    for trajectory_id, advantage in found.items():
        (lane,) = [row for row in workspace.lake.read(LANES.name).to_pylist() if row["trajectory_id"] == trajectory_id]
        assert (lane["advantage"], lane["batch_id"]) == (advantage, batch_id)


def test_no_held_out_or_audit_task_reaches_a_batch(workspace: Workspace) -> None:
    """I8, also where the split came after a group was rewarded."""
    _, frozen = night(workspace, {"held": MIXED, "audited": MIXED}, splits={"held": "held_out", "audited": "audit"})
    assert frozen.batch_ids == []
    assert frozen.reasons == {"audit_task": 4, "held_out_task": 4}
    assert "8" not in (frozen.why_nothing or "") and "4 audit_task" in (frozen.why_nothing or "")


def test_members_whose_tokens_make_no_row_are_left_out_before_advantages(workspace: Workspace) -> None:
    bad = Logged("bad tokens", 0.0, calls=[call(logprobs=[-0.5, 0.9])])
    counted = Logged("counted twice", 0.5, num_sampled_tokens=4)
    tasks = {"mixed": [*MIXED, bad, counted], "spread_lost": [*EQUAL, bad], "alone": [Logged("a", 1.0), bad]}
    ids, frozen = night(workspace, tasks)
    sorted_into = lanes(workspace)
    assert [sorted_into[i] for i in ids["mixed"]] == [("grpo", "trained")] * 4 + [("excluded", "row_refused")] * 2
    assert [sorted_into[i][1] for i in ids["spread_lost"]] == ["no_spread", "no_spread", "row_refused"]
    assert [sorted_into[i][1] for i in ids["alone"]] == ["no_siblings", "row_refused"]
    _, rows = batch(workspace, frozen.batch_ids[0])
    found = {row["trajectory_id"]: row["advantage"] for row in rows.to_pylist()}
    assert [found[i] for i in ids["mixed"][:4]] == advantages([1_000_000, 0, 1_000_000, 500_000])
    assert freeze(workspace, NIGHT).reasons == frozen.reasons


def test_every_call_of_an_attempt_is_a_row_and_sampled_tokens_add_up(workspace: Workspace) -> None:
    calls = [call([1], [2, 3, 4], [-1.0, -1.0, -1.0]), call([1, 2, 3, 4, 5], [6], [-0.5])]
    _, frozen = night(workspace, {"t": [Logged("a", 1.0, calls=calls), Logged("b", 0.0, calls=calls)]})
    _, rows = batch(workspace, frozen.batch_ids[0])
    assert (frozen.rows, frozen.sampled_tokens) == (4, 8)
    assert sum(sum(mask) for mask in rows.column("sampled").to_pylist()) == 8
    assert rows.column("turn").to_pylist() == [0, 1, 0, 1]


def test_a_trajectory_trains_once(workspace: Workspace) -> None:
    """I14, over nights, over a rubric that changed, and over a night that is run again."""
    _, frozen = night(workspace, {"t": MIXED})
    assert frozen.batch_ids == pending(workspace)
    held, sorted_into = consumed(workspace), lanes(workspace)
    for _ in range(2):
        rerun = freeze(workspace, NIGHT)
        assert (rerun.batch_ids, rerun.groups, rerun.why_nothing) == (frozen.batch_ids, 0, None)
    assert (consumed(workspace), lanes(workspace)) == (held, sorted_into)
    checkpoint(workspace, frozen.batch_ids)
    assert pending(workspace) == []
    (workspace.folder / "rubrics" / "default.md").write_text("Another rubric.")
    score(workspace, NEXT)
    later = freeze(workspace, NEXT)
    assert (later.batch_ids, later.lanes) == ([], {})
    assert later.why_nothing
    assert consumed(workspace) == held


def test_the_next_night_takes_what_is_new(workspace: Workspace) -> None:
    _, first = night(workspace, {"t": MIXED, "equal": EQUAL})
    ids, second = night(workspace, {"u": MIXED}, NEXT)
    assert len(second.batch_ids) == 2 and first.batch_ids[0] in second.batch_ids  # the first still waits for its training
    assert second.groups == 1
    assert set(lanes(workspace, NEXT)) > set(ids["u"])
    assert second.reasons == {"no_spread": 2, "trained": 4}
    before = lanes(workspace)
    assert freeze(workspace, NIGHT).reasons == {"no_spread": 2, "trained": 4}
    assert lanes(workspace) == before  # a past night that froze nothing now keeps what it said


def test_again_freezes_consumed_groups_once_more_and_marks_them(workspace: Workspace) -> None:
    _, frozen = night(workspace, {"t": MIXED})
    checkpoint(workspace, frozen.batch_ids)
    again = freeze(workspace, NIGHT, again=True)
    (batch_id,) = again.batch_ids
    assert batch_id != frozen.batch_ids[0]
    assert [(row["batch_id"] == batch_id, row["again"]) for row in consumed(workspace) if row["again"]] == [(True, True)]
    columns = ["trajectory_id", "token_ids", "advantage"]
    assert batch(workspace, batch_id)[1].select(columns).equals(batch(workspace, frozen.batch_ids[0])[1].select(columns))
    # asked again before it is trained, it is the same one; afterwards a third is made
    assert freeze(workspace, NIGHT, again=True).batch_ids == [batch_id]
    checkpoint(workspace, [batch_id], NEXT)
    third = freeze(workspace, NIGHT, again=True).batch_ids
    assert len(third) == 1 and third[0] not in (batch_id, frozen.batch_ids[0])


def test_the_judge_alone_tells_a_group_apart(tmp_path: Path) -> None:
    """Uncalibrated it trains nothing, and the reason says that it is the judge's doing and not the tests'."""
    from tests.judge_double import score_by
    from tests.rewards.test_score import asking

    workspace = prepare(tmp_path)
    config = (tmp_path / "nightshift.toml").read_text().replace("groups_per_night = 0", 'model = "openai/judge-1"')
    workspace = make_workspace(tmp_path, config)
    equal = [Logged(answer, 1.0) for answer in "abbb"]
    ids = seal_groups(workspace, {"pass": equal, "untested": [Logged(answer) for answer in "abbb"]})
    score(workspace, NIGHT, door=asking(score_by(lambda text: 0.9 if '"a"' in text else 0.1), []))
    frozen = freeze(workspace, NIGHT)
    assert frozen.batch_ids == []
    assert {lanes(workspace)[i][1] for members in ids.values() for i in members} == {"uncalibrated_judge"}


FREEZE = """
import sys
from pipelines.batches import freeze
from pipelines.workspace import Workspace
print(*freeze(Workspace.open(sys.argv[1]), sys.argv[2]).batch_ids)
"""


def child(workspace: Workspace, day: str = NIGHT, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FREEZE, str(workspace.folder), day],
        env={**os.environ, **environment, "PYTHONPATH": "."},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


STEPS = (
    "batches:rows_written",
    "batches:manifest_written",
    "batches:published",
    *(f"{table}:{when}" for table in (CONSUMED.name, LANES.name) for when in ("before_commit", "after_commit")),
)


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_and_run_again_it_gives_the_same_batch(tmp_path: Path, step: str) -> None:
    straight, killed = prepare(tmp_path / "straight"), prepare(tmp_path / "killed")
    tasks = {"t": MIXED, "u": MIXED, "equal": EQUAL, "bad": [*EQUAL, Logged("x", 0.0, calls=[call(logprobs=[0.9, 0.9])])]}
    _, expected = night(straight, tasks)
    seal_groups(killed, tasks)
    score(killed, NIGHT)
    dying = child(killed, NIGHTSHIFT_KILL_AT=step)
    _, errors = dying.communicate()
    assert dying.returncode == -signal.SIGKILL, errors
    frozen = freeze(killed, NIGHT)
    assert frozen.batch_ids == expected.batch_ids == pending(killed)
    assert frozen.reasons == expected.reasons
    assert consumed(killed) == consumed(straight)
    assert lanes(killed) == lanes(straight)
    batch(killed, frozen.batch_ids[0])


def test_racing_freezers_consume_every_group_once(workspace: Workspace) -> None:
    """Two nights at once over the same groups: one claims them, the other finds it done."""
    ids = seal_groups(workspace, {f"t{number}": MIXED for number in range(5)})
    score(workspace, NIGHT)
    children = [child(workspace, day) for day in (NIGHT, NEXT)]
    for process in children:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    rows = consumed(workspace)
    assert len(rows) == len({row["group_id"] for row in rows}) == len(ids)
    (batch_id,) = pending(workspace)
    assert batch(workspace, batch_id)[0].groups == sorted(row["group_id"] for row in rows)


def test_a_freezer_that_was_overtaken_takes_only_what_is_left(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another freezer, which looked before the second group was sealed, claims the first while this one writes both."""
    first = seal_groups(workspace, {"t": MIXED})
    score(workspace, NIGHT)
    (early,) = batches._drafts(workspace, NEXT, {}, again=False)
    second = seal_groups(workspace, {"u": MIXED})
    score(workspace, NIGHT)
    write = batches._write

    def overtaken(space: Workspace, day: str, draft: Any) -> None:
        monkeypatch.setattr(batches, "_write", write)
        write(space, day, draft)
        write(space, NEXT, early)
        assert batches._consume(space, NEXT, early)

    monkeypatch.setattr(batches, "_write", overtaken)
    frozen = freeze(workspace, NIGHT)
    assert [row["night"] for row in consumed(workspace)] == [NIGHT, NEXT]
    assert (frozen.groups, len(frozen.batch_ids), frozen.reasons) == (1, 2, {"trained": 4, "consumed": 4})
    assert {i for i, lane in lanes(workspace).items() if lane[1] == "trained"} == set(second["u"])
    assert not set(first["t"]) & set(second["u"])


def test_a_file_that_is_not_the_one_that_was_frozen_is_named(workspace: Workspace) -> None:
    from pipelines.errors import BatchRefusedError

    _, frozen = night(workspace, {"t": MIXED})
    rows = workspace.batches / frozen.batch_ids[0] / "rows.parquet"
    rows.write_bytes(rows.read_bytes()[:-1])
    with pytest.raises(BatchRefusedError, match=frozen.batch_ids[0]):
        freeze(workspace, NIGHT)


def test_a_setting_that_is_changed_back_brings_the_old_rewards_back(tmp_path: Path) -> None:
    """The newest row is not the one in force where it was made under other settings."""
    workspace = prepare(tmp_path)
    plain = (tmp_path / "nightshift.toml").read_text()
    verifier = '\n[[rewards.verifiers]]\nname = "flat"\nkind = "python"\nentry = "verifier.py:verify"\n'
    (tmp_path / "verifier.py").write_text("def verify(task_id, turns):\n    return 1.0\n")
    seal_groups(workspace, {"t": MIXED})
    score(workspace, NIGHT)
    flat = make_workspace(tmp_path, plain + verifier)
    score(flat, NIGHT)
    assert freeze(flat, NIGHT).reasons == {"no_spread": 4}
    back = make_workspace(tmp_path, plain)
    assert score(back, NIGHT).groups == 0
    assert freeze(back, NIGHT).reasons == {"trained": 4}


def test_the_manifest_is_plain_json(workspace: Workspace) -> None:
    _, frozen = night(workspace, {"t": MIXED})
    content = json.loads((workspace.batches / frozen.batch_ids[0] / "manifest.json").read_text())
    assert content["batch_id"] == frozen.batch_ids[0]
    assert not list(workspace.batches.glob(".*.partial"))


def test_outcomes_that_differ_by_the_rounding_of_floats_alone_have_no_spread(workspace: Workspace) -> None:
    """A constant reward in floats has a tiny deviation, which normalising blows up to full strength (verl#5228)."""
    tenth_by_tenth = [0.3, 0.1 + 0.2, 0.1 * 3, 0.3 + 1e-12]
    assert len(set(tenth_by_tenth)) > 1
    below = [Logged(str(number), 0.5 + number * 1e-4) for number in range(8)]  # spread 7e-4: the bound is 1e-3
    ids, frozen = night(workspace, {"t": [Logged(str(outcome), outcome) for outcome in tenth_by_tenth], "below": below})
    assert frozen.batch_ids == []
    assert {lanes(workspace)[i] for members in ids.values() for i in members} == {("excluded", "no_spread")}


def test_thirty_days_of_a_backfill_are_one_batch_and_running_a_day_again_adds_nothing(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, "\n[evaluation]\nheld_out_share = 0.0\n[groups]\nsize = 2\n")
    lines = []
    for day in reversed(range(30)):
        lines += [
            logged(f"{day}-{number}", task=str(day), day=-day, outcome=float(number), policy_version="agent@0", text=str(number))
            for number in range(2)
        ]
    for part in range(3):  # a month of attempts, mixed over three files
        deliver(workspace, lines[part::3], f"logs/{part}.jsonl")
        build(workspace)
    made, days = workspace.lake.read(TRAJECTORIES.name).num_rows, [row["day"] for row in rows_of(workspace, TRAJECTORIES.name)]
    seal(workspace, "2026-11-21", judged=True)
    score(workspace, "2026-11-21")
    frozen = freeze(workspace, "2026-11-21")
    assert (len(frozen.batch_ids), frozen.groups, frozen.trajectories) == (1, 30, 60)
    build(workspace, sorted(set(days)))  # all of them again at once, then the newest and the oldest
    for day in (max(days), min(days)):
        build(workspace, [day])
        assert (seal(workspace, day, judged=True).groups, score(workspace, day).groups) == (0, 0)
    assert workspace.lake.read(TRAJECTORIES.name).num_rows == made
    assert freeze(workspace, "2026-11-22").groups == 0 and pending(workspace) == frozen.batch_ids
