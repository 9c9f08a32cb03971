"""Of one task and its near-copies a night takes so many groups; the others wait for later nights, and none is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import batches
from pipelines.batch_clusters import Contenders
from pipelines.batches import freeze
from pipelines.invariants import near_held_out_stays_out
from pipelines.lineage import why
from pipelines.rewards.score import score
from pipelines.schemas import CLUSTERS, NEAR, REQUESTS
from pipelines.signatures import Making, signatures
from pipelines.workspace import Workspace
from tests.batches.test_freeze import MIXED, NEXT, NIGHT, consumed, lanes, prepare
from tests.requests import edited, request
from tests.sealed import Logged, seal_groups

PAIR = [Logged("good", 1.0), Logged("bad", 0.0)]
HALF = [Logged("good", 0.5), Logged("bad", 0.0)]


def known(workspace: Workspace, texts: dict[str, str]) -> None:
    """The requests of some tasks, as stage 3 leaves them."""
    made = signatures(list(texts.values()), Making.of(workspace.config.groups))
    rows = [
        {
            "task_key": workspace.identity.task_key("desk", task),
            "split": "train",
            "request_signature": signature,
            "near_threshold": 800_000,
            "night": NIGHT,
        }
        for task, signature in zip(texts, made, strict=True)
    ]
    workspace.lake.append(REQUESTS.name, pa.Table.from_pylist(rows, schema=REQUESTS.schema))


def crowd(folder: Path, cap: str = "2") -> tuple[Workspace, dict[str, list[str]]]:
    """Five tasks of one template, one of which has a smaller spread, and one task of its own."""
    workspace = prepare(folder, f"[groups]\ncap_per_cluster = {cap}\n" if cap else "")
    ids = seal_groups(workspace, {**{f"t{number}": PAIR for number in range(4)}, "half": HALF, "alone": MIXED}, night=NIGHT)
    texts = {task: edited(request(1, words=200), 1, seed=number) for number, task in enumerate(("t0", "t1", "t2", "t3", "half"))}
    known(workspace, {**texts, "alone": request(2, words=200)})
    score(workspace, NIGHT)
    return workspace, ids


def by_task(ids: dict[str, list[str]], found: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {task: found[trajectories[0]][1] for task, trajectories in ids.items()}


def test_a_template_gives_so_many_groups_a_night_and_the_rest_waits(tmp_path: Path) -> None:
    workspace, ids = crowd(tmp_path)
    frozen = freeze(workspace, NIGHT)
    assert frozen.groups == 3 and frozen.reasons == {"trained": 8, "cluster_full": 6}
    first = by_task(ids, lanes(workspace))
    assert first["alone"] == "trained" and first["half"] == "cluster_full"  # the largest spread goes first
    rows = workspace.lake.read(CLUSTERS.name).to_pylist()
    assert {(row["num_tasks"], row["num_groups"], row["num_waiting"]) for row in rows} == {(5, 2, 3)} and len(rows) == 5
    story = why(workspace, ids["half"][0])
    assert [row["num_waiting"] for row in story["clusters"]] == [3]

    assert freeze(workspace, NEXT).groups == 2
    assert {lanes(workspace, NEXT)[trajectory_id] for trajectory_id in ids["half"]} == {("excluded", "cluster_full")}
    assert freeze(workspace, "2026-11-22").groups == 1
    assert len({row["group_id"] for row in consumed(workspace)}) == len(consumed(workspace)) == 6
    assert freeze(workspace, "2026-11-23").groups == 0
    held = {row["night"] for row in workspace.lake.read(CLUSTERS.name).to_pylist()}
    assert held == {NIGHT, NEXT}


def test_a_night_that_is_run_again_takes_no_more(tmp_path: Path) -> None:
    workspace, _ = crowd(tmp_path)
    batch_ids = freeze(workspace, NIGHT).batch_ids
    before = lanes(workspace)
    for _ in range(2):
        again = freeze(workspace, NIGHT)
        assert again.groups == 0 and again.batch_ids == batch_ids
        assert lanes(workspace) == before
    assert {row["num_groups"] for row in workspace.lake.read(CLUSTERS.name).to_pylist()} == {2}


@pytest.mark.parametrize(
    "step", ["batches:published", "batches/consumed:before_commit", "batches/consumed:after_commit", "batches/lanes:after_commit"]
)
def test_killed_and_run_again_it_gives_the_same_batch(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = crowd(tmp_path / "whole")
    expected = freeze(whole, NIGHT).batch_ids
    workspace, _ = crowd(tmp_path / "killed")

    class KilledError(BaseException):
        pass

    def killed(name: str) -> None:
        if name == step:
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(batches, "reached", killed)
        patched.setattr("pipelines.doors.lake.reached", killed)
        with pytest.raises(KilledError):
            freeze(workspace, NIGHT)
    assert freeze(workspace, NIGHT).batch_ids == expected
    assert lanes(workspace) == lanes(whole)
    assert workspace.lake.read(CLUSTERS.name).sort_by("task_key").equals(whole.lake.read(CLUSTERS.name).sort_by("task_key"))


def test_again_freezes_what_the_night_took_and_nothing_that_waits(tmp_path: Path) -> None:
    workspace, _ = crowd(tmp_path)
    freeze(workspace, NIGHT)
    groups = {row["group_id"] for row in consumed(workspace)}
    assert freeze(workspace, NIGHT, again=True).groups == 3
    assert {row["group_id"] for row in consumed(workspace)} == groups


def test_without_a_cap_all_train_and_without_near_copies_each_task_has_its_own(tmp_path: Path) -> None:
    workspace, _ = crowd(tmp_path / "none", cap="")
    assert workspace.config.groups.cap_per_cluster == 8
    assert freeze(workspace, NIGHT).groups == 6
    assert workspace.lake.version(CLUSTERS.name) is None


def test_one_task_with_many_groups_is_capped_by_itself(tmp_path: Path) -> None:
    from pipelines.schemas import GROUPS

    workspace = prepare(tmp_path, "[groups]\ncap_per_cluster = 1\n")
    ids = seal_groups(workspace, {"one": [*PAIR, *PAIR], "two": PAIR}, night=NIGHT)
    rows = workspace.lake.read(GROUPS.name).to_pylist()
    for row in rows:  # the second half of the task's attempts is a group of its own
        if row["trajectory_id"] in ids["one"][2:]:
            row["group_id"] = "grp_second"
    workspace.lake.replace_rows(
        GROUPS.name,
        "group_id",
        sorted({row["group_id"] for row in rows}),
        lambda _: pa.Table.from_pylist(rows, schema=GROUPS.schema),
    )
    score(workspace, NIGHT)
    frozen = freeze(workspace, NIGHT)
    assert frozen.groups == 2 and frozen.reasons == {"trained": 4, "cluster_full": 2}


def test_a_near_copy_of_a_held_out_task_reaches_no_batch_and_the_check_would_see_it(tmp_path: Path) -> None:
    workspace = prepare(tmp_path)
    ids = seal_groups(workspace, {"near": PAIR, "far": PAIR}, night=NIGHT)
    row = {"task_key": workspace.identity.task_key("desk", "near"), "near_key": "tsk_h", "near_split": "held_out"}
    told: dict[str, Any] = {**row, "similarity": 930_000, "trained": False, "night": NIGHT}
    score(workspace, NIGHT)
    workspace.lake.append(NEAR.name, pa.Table.from_pylist([told], schema=NEAR.schema))
    assert freeze(workspace, NIGHT).groups == 1
    assert by_task(ids, lanes(workspace)) == {"near": "near_held_out", "far": "trained"}
    finding = near_held_out_stays_out(workspace)
    assert (finding.num_looked_at, finding.num_broken, finding.counted) == (2, 0, {"found_late": 0})
    story = why(workspace, ids["near"][0])
    assert [(near["near_key"], near["similarity"]) for near in story["near"]] == [("tsk_h", 930_000)]
    for trained, broken in ((True, 0), (False, 2)):
        far = {**told, "task_key": workspace.identity.task_key("desk", "far"), "trained": trained}
        rows = pa.Table.from_pylist([told, far], schema=NEAR.schema)
        workspace.lake.replace_rows(NEAR.name, "near_split", ["held_out"], lambda _, rows=rows: rows)
        finding = near_held_out_stays_out(workspace)
        assert finding.num_broken == broken and finding.counted == {"found_late": 2 - broken}


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.booleans()), max_size=30, unique_by=id),
    st.integers(1, 5),
)
def test_the_cap_holds_whatever_was_taken_before(drawn: list[tuple[str, bool]], cap: int) -> None:
    tonight = {cluster: sum(1 for other, taken in drawn if other == cluster and taken) for cluster in "xyz"}
    rows = [
        {"group_id": f"g{place}", "task_key": cluster, "cluster": cluster, "tonight": taken, "num_taken": tonight[cluster]}
        for place, (cluster, taken) in enumerate(drawn)
    ]
    open_groups = [row["group_id"] for row in rows if not row["tonight"]]
    found = Contenders(rows, cap).taken(open_groups)
    for cluster in "xyz":
        asked = [row["group_id"] for row in rows if row["cluster"] == cluster and not row["tonight"]]
        took = [group_id for group_id in asked if group_id in found]
        assert took == asked[: max(cap - tonight[cluster], 0)]
