from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.batch_rows import SCHEMA, Member, RowRefusedError, hashes_of, sequences_of, table_of
from pipelines.ids import Identity
from tests.sealed import call

IDENTITY = Identity(b"k" * 32)


def table(members: list[Member], **more: str) -> pa.Table:
    arguments = {"lane": "grpo", "base_model": "toy", "tokenizer_hash": "abc", **more}
    return table_of(members, identity=IDENTITY, **arguments)


def member(calls: list[dict[str, Any]], *, trajectory_id: str = "trj_1", advantage: float = 1.0, generation: int = 0) -> Member:
    sampled = sum(len(entry["token_ids"]) for entry in calls)
    return Member("grp_1", trajectory_id, "agent@0", advantage, generation, sequences_of(json.dumps(calls), sampled))


@st.composite
def logged_calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    token = st.integers(0, 2**31 - 1)
    calls = []
    for _ in range(draw(st.integers(1, 4))):
        sampled = draw(st.lists(token, min_size=1, max_size=6))
        logprobs = [draw(st.floats(-50, 0, width=32)) for _ in sampled]
        calls.append(call(draw(st.lists(token, min_size=1, max_size=6)), sampled, logprobs))
    return calls


@settings(max_examples=60)
@given(st.lists(logged_calls(), min_size=1, max_size=4))
def test_only_sampled_tokens_are_trainable_each_once(attempts: list[list[dict[str, Any]]]) -> None:
    """I7: one row per call; the mask is true exactly at the sampled ids, which come with their logprobs."""
    rows = table([member(calls, trajectory_id=f"trj_{n}") for n, calls in enumerate(attempts)])
    assert rows.schema == SCHEMA
    logged = [(f"trj_{n}", turn, entry) for n, calls in enumerate(attempts) for turn, entry in enumerate(calls)]
    assert rows.num_rows == len(logged)
    for row, (trajectory_id, turn, entry) in zip(rows.to_pylist(), logged, strict=True):
        assert (row["trajectory_id"], row["turn"]) == (trajectory_id, turn)
        mask = row["sampled"]
        assert 0 < sum(mask) < len(mask)
        assert row["token_ids"] == entry["prompt_token_ids"] + entry["token_ids"]
        assert [token for token, is_sampled in zip(row["token_ids"], mask, strict=True) if is_sampled] == entry["token_ids"]
        missing = [None] * len(entry["prompt_token_ids"])
        assert row["behaviour_logprobs"] == missing + entry["logprobs"]
    total = sum(sum(mask) for mask in rows.column("sampled").to_pylist())
    assert total == sum(len(entry["token_ids"]) for _, _, entry in logged)


@pytest.mark.parametrize(
    ("calls", "num_sampled", "said"),
    [
        ([{**call(), "token_ids": None}], 2, "not logged"),
        ([{**call(), "logprobs": None}], 2, "not logged"),
        ([{**call(), "prompt_token_ids": None}], 2, "not logged"),
        ([call(sampled=[], logprobs=[])], 0, "no sampled token"),
        ([call(prompt=[])], 2, "no prompt"),
        ([call(logprobs=[-0.5])], 2, "2 sampled ids and 1 logprobs"),
        ([call(logprobs=[-0.5, None])], 2, "no number"),
        ([call(logprobs=[-0.5, "NaN"])], 2, "no number"),
        ([call(logprobs=[-0.5, 0.7])], 2, "at or below 0"),
        ([call(logprobs=[-0.5, -1e300])], 2, "at or below 0"),
        ([call(sampled=[4, -1])], 2, "negative"),
        ([call(sampled=[4, 2**31])], 2, "too large"),
        ([call(sampled=[4, 2**63 - 1])], 2, "too large"),
        ([call(sampled=[4, 5.5])], 2, "no integer"),
        ([call(sampled=[4, True])], 2, "no integer"),
        ([call()], 3, "sampled 2 tokens and the trajectory 3"),
        ([], 0, "sampled 0 tokens"),
        ([call(), {**call(), "token_ids": None}], 4, "call 1"),
    ],
)
def test_what_breaks_the_mask_is_refused(calls: list[dict[str, Any]], num_sampled: int, said: str) -> None:
    with pytest.raises(RowRefusedError, match=said):
        sequences_of(json.dumps(calls), num_sampled)


def test_the_hashes_can_be_taken_again_from_the_rows() -> None:
    rows = table([member([call(), call(prompt=[9, 9])]), member([call()], trajectory_id="trj_2", advantage=-1.0)])
    assert hashes_of(rows, identity=IDENTITY, generations={"grp_1": 0}) == rows.column("row_hash").to_pylist()
    sliced = rows.slice(1)
    assert hashes_of(sliced, identity=IDENTITY, generations={"grp_1": 0}) == rows.column("row_hash").to_pylist()[1:]


def test_any_change_of_content_changes_the_hash() -> None:
    base = member([call()])
    variants = [
        table([base]),
        table([member([call(prompt=[1, 2])])]),
        table([member([call(sampled=[4, 6])])]),
        table([member([call(logprobs=[-0.5, -0.125])])]),
        table([member([call(prompt=[1, 2, 3, 4], sampled=[5], logprobs=[-0.25])])]),
        table([member([call()], advantage=0.5)]),
        table([member([call()], trajectory_id="trj_2")]),
        table([member([call()], generation=1)]),
        table([base], base_model="other"),
        table([base], tokenizer_hash="other"),
        table([base], lane="grpo_recomputed"),
    ]
    hashes = [rows.column("row_hash")[0].as_py() for rows in variants]
    assert len(set(hashes)) == len(hashes)


def test_logprobs_are_hashed_as_they_are_stored() -> None:
    """A reader of the file sees float32; the logged float64 beyond that must not reach the hash."""
    exact = float(np.float32(-0.1))
    assert table([member([call(logprobs=[-0.1, exact])])]).equals(table([member([call(logprobs=[exact, -0.1])])]))
