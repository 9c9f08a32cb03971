"""I14 and I6 over whole stages: histories of nights, drawn at random."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pipelines.batches import freeze, pending
from pipelines.rewards.score import score
from pipelines.schemas import CHECKPOINTS, CONSUMED
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.sealed import CONFIG, Logged, fake_model, seal_groups

outcomes = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=4)
steps = st.one_of(
    st.tuples(st.just("seal"), outcomes),
    st.tuples(st.just("night"), st.integers(20, 24)),
    st.tuples(st.just("train"), st.none()),
)


# without shrinking: a history costs seconds, and a failing one is short enough to read
@settings(max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=3, max_size=5))
def test_whatever_the_order_of_nights_a_trajectory_trains_once(history: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = make_workspace(Path(folder), CONFIG.format(model=fake_model(Path(folder) / "toy-model")))
        with_spread: set[str] = set()
        for number, (step, value) in enumerate([*history, ("night", 25)]):
            if step == "seal":
                attempts = [Logged(f"answer {n}", outcome) for n, outcome in enumerate(value)]
                members = seal_groups(workspace, {f"task {number}": attempts})[f"task {number}"]
                with_spread |= set(members) if len(set(value)) > 1 else set()
            elif step == "night":
                score(workspace, f"2026-11-{value}")
                freeze(workspace, f"2026-11-{value}")
            else:
                train(workspace, number)
        rows = workspace.lake.read(CONSUMED.name).to_pylist()
        assert len(rows) == len({row["group_id"] for row in rows})
        trained = [
            trajectory_id
            for batch_id in sorted({row["batch_id"] for row in rows})
            for trajectory_id in pq.read_table(workspace.batches / batch_id / "rows.parquet").column("trajectory_id").to_pylist()
        ]
        assert len(trained) == len(set(trained))
        assert set(trained) == with_spread


def train(workspace: Workspace, number: int) -> None:
    waiting = pending(workspace)
    row = {"checkpoint_id": f"ckp_{number}", "policy": "agent", "version": number, "night": "2026-11-20", "path": "x"}
    if waiting:
        rows = pa.Table.from_pylist([{**row, "batches": waiting, "marks": []}], schema=CHECKPOINTS.schema)
        workspace.lake.append(CHECKPOINTS.name, rows)
    assert pending(workspace) == []


def test_shifted_and_scaled_outcomes_give_the_same_advantages(tmp_path: Path) -> None:
    """I6: a verifier that scores half as high, or a tenth higher, teaches the same."""
    workspace = make_workspace(tmp_path, CONFIG.format(model=fake_model(tmp_path / "toy-model")))
    outcomes = {"plain": [0.0, 0.2, 0.8, 0.2], "shifted": [0.1, 0.3, 0.9, 0.3], "scaled": [0.0, 0.1, 0.4, 0.1]}
    tasks = {task: [Logged(f"answer {n}", outcome) for n, outcome in enumerate(values)] for task, values in outcomes.items()}
    ids = seal_groups(workspace, {**tasks, "noise": [Logged("a", 0.5), Logged("b", 0.501)]})
    score(workspace, "2026-11-20")
    frozen = freeze(workspace, "2026-11-20")
    assert frozen.reasons == {"no_spread": 2, "trained": 12}
    rows = pq.read_table(workspace.batches / frozen.batch_ids[0] / "rows.parquet").to_pylist()
    found = {row["trajectory_id"]: row["advantage"] for row in rows}
    plain, shifted, scaled = ([found[i] for i in ids[task]] for task in outcomes)
    assert plain == shifted == scaled
