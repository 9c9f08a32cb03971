from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.trainer.runs import SCHEMA, freeze, write_run
from trainer import batches
from trainer.contract import ROWS_FILE, BatchRefusedError, RunRefusedError, sha256_of
from trainer.run import RunConfig


@pytest.fixture
def read(tmp_path: Path, toy_model: Path):
    def read(*folders: Path, **changed: Any) -> list[batches.Row]:
        run = RunConfig.read(write_run(tmp_path / "run", folders, toy_model, **changed))
        return batches.read(run, batches.BaseModel.read(run))[1]

    return read


def test_rows_arrive_whole_and_in_order(tmp_path: Path, rows, read):
    first, second = freeze(tmp_path / "first", rows[:6]), freeze(tmp_path / "second", rows[6:])
    found = read(first, second)
    assert [row.row_hash for row in found] == [row["row_hash"] for row in rows]
    for row, entry in zip(found, rows, strict=True):
        assert list(row.token_ids) == entry["token_ids"]
        assert row.sampled_at.tolist() == [at for at, mark in enumerate(entry["sampled"]) if mark]
        assert row.behaviour_logprobs.tolist() == [value for value in entry["behaviour_logprobs"] if value is not None]
        assert (row.group_id, row.trajectory_id, row.advantage, row.weight) == (
            entry["group_id"],
            entry["trajectory_id"],
            entry["advantage"],
            entry["weight"],
        )


def test_how_a_writer_stores_offsets_does_not_matter(tmp_path: Path, rows, read):
    large = {pa.string(): pa.large_string()}
    schema = pa.schema(
        [
            (
                field.name,
                pa.large_list(field.type.value_type) if pa.types.is_list(field.type) else large.get(field.type, field.type),
            )
            for field in SCHEMA
        ]
    )
    assert len(read(freeze(tmp_path / "batch", rows, schema=schema))) == len(rows)


BAD_ROWS = {
    "all-zero mask": (lambda row: row.update(sampled=[False] * len(row["sampled"])), "0 of 13 tokens are sampled"),
    "all-one mask": (lambda row: row.update(sampled=[True] * len(row["sampled"])), "13 of 13 tokens are sampled"),
    "first token sampled": (lambda row: row.update(sampled=[True, *row["sampled"][1:]]), "first token"),
    "short mask": (lambda row: row.update(sampled=row["sampled"][1:]), "sampled mask of 12"),
    "short logprobs": (lambda row: row.update(behaviour_logprobs=row["behaviour_logprobs"][1:]), "12 behaviour logprobs"),
    "no logprobs": (lambda row: row.update(behaviour_logprobs=None), "no behaviour logprobs"),
    "logprob null where sampled": (lambda row: row["behaviour_logprobs"].__setitem__(-1, None), "behaviour logprob of None"),
    "logprob not a number": (lambda row: row["behaviour_logprobs"].__setitem__(-1, math.nan), "behaviour logprob of nan"),
    "logprob of minus infinity": (lambda row: row["behaviour_logprobs"].__setitem__(-1, -math.inf), "behaviour logprob of -inf"),
    "logprob above zero": (lambda row: row["behaviour_logprobs"].__setitem__(-1, 0.5), "behaviour logprob of 0.5"),
    "token outside the vocabulary": (lambda row: row["token_ids"].__setitem__(0, 999_999), "vocabulary"),
    "negative token": (lambda row: row["token_ids"].__setitem__(0, -1), "vocabulary"),
    "null token": (lambda row: row["token_ids"].__setitem__(0, None), "null among its token ids"),
    "advantage not a number": (lambda row: row.update(advantage=math.nan), "advantage nan"),
    "negative weight": (lambda row: row.update(weight=-1.0), "weight -1.0"),
    "no advantage": (lambda row: row.update(advantage=None), "advantage is null"),
    "another lane": (lambda row: row.update(lane="sft"), "its lane is 'sft'"),
    "another base model": (lambda row: row.update(base_model="other"), "its base_model is 'other'"),
    "another tokenizer": (lambda row: row.update(tokenizer_hash="other"), "its tokenizer_hash is 'other'"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_bad_row_is_refused_by_batch_and_row(tmp_path: Path, rows, read, case: str):
    change, named = BAD_ROWS[case]
    num_sampled = sum(sum(row["sampled"]) for row in rows)
    change(rows[3])
    folder = freeze(tmp_path / "batch", rows, num_sampled_tokens=num_sampled)
    with pytest.raises(BatchRefusedError) as refused:
        read(folder)
    message = str(refused.value)
    assert named in message and "row 3" in message and rows[3]["row_hash"] in message
    assert message.startswith(f"batch {refused.value.ids['batch_id']}") and "\n" not in message


def test_a_sampler_that_rounds_above_zero_is_not_refused(tmp_path: Path, rows, read):
    rows[0]["behaviour_logprobs"][-1] = 1e-6
    assert len(read(freeze(tmp_path / "batch", rows))) == len(rows)


def test_a_struck_batch_is_refused_by_name(tmp_path: Path, rows, read):
    rows[2].update(struck=True, token_ids=[], sampled=[], behaviour_logprobs=None)
    with pytest.raises(BatchRefusedError, match=rf"1 struck rows \(first {rows[2]['row_hash']}\)"):
        read(freeze(tmp_path / "batch", rows))


def test_a_changed_byte_is_refused(tmp_path: Path, rows, read):
    folder = freeze(tmp_path / "batch", rows)
    content = bytearray((folder / ROWS_FILE).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / ROWS_FILE).write_bytes(content)
    with pytest.raises(BatchRefusedError, match="sha256 differs"):
        read(folder)


def test_a_batch_without_manifest_is_refused(tmp_path: Path, rows, read):
    folder = freeze(tmp_path / "batch", rows)
    (folder / "manifest.json").unlink()
    with pytest.raises(BatchRefusedError, match="never finished"):
        read(folder)


def test_rows_that_are_no_parquet_are_refused(tmp_path: Path, rows, read):
    folder = freeze(tmp_path / "batch", rows)
    (folder / ROWS_FILE).write_bytes(b"PAR1 torn")
    manifest = batches.BatchManifest.read(folder)
    replace(manifest, rows_sha256=sha256_of(folder / ROWS_FILE)).write(folder)
    with pytest.raises(BatchRefusedError, match="cannot be read"):
        read(folder)


def test_another_schema_is_refused_by_column(tmp_path: Path, rows, read):
    without = SCHEMA.remove(SCHEMA.get_field_index("weight"))
    with pytest.raises(BatchRefusedError, match="missing: weight; unknown: none"):
        read(freeze(tmp_path / "fewer", rows, schema=without))
    more = SCHEMA.append(pa.field("reward", pa.float64()))
    with pytest.raises(BatchRefusedError, match="missing: none; unknown: reward"):
        read(freeze(tmp_path / "more", rows, schema=more))
    wider = SCHEMA.set(SCHEMA.get_field_index("token_ids"), pa.field("token_ids", pa.list_(pa.int64())))
    with pytest.raises(BatchRefusedError, match="column token_ids is of type"):
        read(freeze(tmp_path / "wider", rows, schema=wider))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"num_rows": 11}, "num_rows of rows and manifest differ"),
        ({"num_sampled_tokens": 1}, "num_sampled_tokens of rows and manifest differ"),
        ({"num_trajectories": 5}, "num_trajectories of rows and manifest differ"),
        ({"groups": ["grp_other"]}, "groups of rows and manifest differ"),
        ({"lane": "sft"}, "is of lane 'sft' and the run trains 'grpo'"),
        ({"base_model": "other"}, "base_model is 'other' and the model's is 'toy'"),
        ({"tokenizer_hash": "other"}, "tokenizer_hash is 'other'"),
        ({"batch_id": "bat_other"}, "do not add up to its id"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(tmp_path: Path, rows, read, changed: dict, named: str):
    with pytest.raises(BatchRefusedError, match=named):
        read(freeze(tmp_path / "batch", rows, **changed))


def test_rows_in_another_order_than_the_manifest_says_are_refused(tmp_path: Path, rows, read):
    hashes = [row["row_hash"] for row in reversed(rows)]
    with pytest.raises(BatchRefusedError, match="row_hashes of rows and manifest differ"):
        read(freeze(tmp_path / "batch", rows, row_hashes=hashes))


def test_a_row_in_two_batches_is_refused(tmp_path: Path, rows, read):
    first, second = freeze(tmp_path / "first", rows[:6]), freeze(tmp_path / "second", rows[3:])
    with pytest.raises(BatchRefusedError, match="a row trains once"):
        read(first, second)


def test_rows_of_one_trajectory_must_agree(tmp_path: Path, rows, read):
    rows[1]["trajectory_id"] = rows[0]["trajectory_id"]
    with pytest.raises(BatchRefusedError, match="disagree on group or advantage"):
        read(freeze(tmp_path / "batch", rows))


def test_a_base_model_that_is_not_there_is_refused(tmp_path: Path, rows, read):
    with pytest.raises(RunRefusedError, match=r"holds no config\.json"):
        read(freeze(tmp_path / "batch", rows), base_model=str(tmp_path))


def test_shuffling_permutes_advantages_inside_each_group_alone(tmp_path: Path, rows, read):
    found = read(freeze(tmp_path / "batch", rows))
    turn = replace(found[0], row_hash="row_second_turn")  # a second turn of the first trajectory
    found.append(turn)
    shuffled = batches.shuffled_advantages(found, seed=1)
    assert [row.row_hash for row in shuffled] == [row.row_hash for row in found]
    assert shuffled[-1].advantage == shuffled[0].advantage
    for group_id in {row.group_id for row in found}:
        before, after = (
            sorted(row.advantage for row in of if row.group_id == group_id and row is not of[-1]) for of in (found, shuffled)
        )
        assert before == after
    assert [row.advantage for row in shuffled] != [row.advantage for row in found]
    assert [row.advantage for row in batches.shuffled_advantages(found, seed=1)] == [row.advantage for row in shuffled]
