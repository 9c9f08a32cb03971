"""ART's trajectory groups, in the schema that its writer declares."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.landing.art_parquet import ArtParquet
from pipelines.landing.format import BadRecord, SourceRecord, Unfinished
from tests.landing.formats.whole_files import read, shape, split

MESSAGE = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("tool_calls", pa.string()),
        ("tool_call_id", pa.string()),
        ("trainable", pa.bool_()),
    ]
)
SCHEMA = pa.schema(
    [
        ("group_index", pa.int64()),
        ("group_metadata", pa.string()),
        ("group_metrics", pa.string()),
        ("group_logs", pa.list_(pa.string())),
        ("reward", pa.float64()),
        ("metrics", pa.string()),
        ("metadata", pa.string()),
        ("tools", pa.string()),
        ("logs", pa.list_(pa.string())),
        ("messages", pa.list_(MESSAGE)),
    ]
)


def message(role: str, content: str | None, **changes: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "tool_calls": None, "tool_call_id": None, "trainable": False, **changes}


def row(reward: float | None = 1.0, **changes: Any) -> dict[str, Any]:
    calls = json.dumps([{"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"a": 1}'}}])
    return {
        "group_index": 0,
        "group_metadata": None,
        "group_metrics": None,
        "group_logs": None,
        "reward": reward,
        "metrics": None,
        "metadata": json.dumps({"scenario_id": 7}),
        "tools": json.dumps([{"type": "function", "function": {"name": "look_up"}}]),
        "logs": None,
        "messages": [
            message("system", "S"),
            message("user", "Q"),
            message("assistant", None, tool_calls=calls, trainable=True),
            message("tool", "found", tool_call_id="c1"),
            message("assistant", "Done.", trainable=True),
        ],
        **changes,
    }


def parquet(*rows: dict[str, Any], group: int = 100) -> bytes:
    raw = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), raw, compression="zstd", row_group_size=group)
    return raw.getvalue()


FORMAT = ArtParquet()
FILES = [parquet(row()), parquet()]
FOLDERS: set[str] = set()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_row_is_an_attempt_and_its_trainable_messages_are_sampled(tmp_path: Path) -> None:
    (attempt,), _ = read(FORMAT, write(tmp_path / "0001.parquet", parquet(row())))
    assert shape(attempt) == "suAtA"
    assert attempt.turns[2]["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"a": 1}'}
    assert attempt.turns[3]["tool_call_id"] == "c1"
    assert (attempt.task_id, attempt.outcome, attempt.outcome_source) == ("7", 1.0, "reward")
    assert attempt.tools == [{"type": "function", "function": {"name": "look_up"}}]
    assert (attempt.model, attempt.policy_version, attempt.purpose) == (None, None, "production")
    assert not attempt.exact_tokens


def test_model_step_and_split_stand_in_the_path(tmp_path: Path) -> None:
    folder = tmp_path / ".art" / "project" / "models" / "agent-1" / "trajectories"
    (trained,), _ = read(FORMAT, write(folder / "train" / "0012.parquet", parquet(row())))
    (validated,), _ = read(FORMAT, write(folder / "val" / "0012.parquet", parquet(row())))
    assert (trained.model, trained.policy_version, trained.purpose) == ("agent-1", "agent-1@12", "production")
    assert validated.purpose == "evaluation"


def test_a_judges_score_is_no_outcome(tmp_path: Path) -> None:
    judged = row(0.8, metrics=json.dumps({"ruler_score": 0.8, "independent_reward": 0.25}))
    alone = row(0.8, metrics=json.dumps({"ruler_score": 0.8}))
    attempts, _ = read(FORMAT, write(tmp_path / "x.parquet", parquet(judged, alone)))
    assert [(attempt.outcome, attempt.outcome_source) for attempt in attempts] == [
        (0.25, "metrics.independent_reward"),
        (None, None),
    ]


def test_a_log_that_was_loaded_and_written_again_has_no_sampled_turn(tmp_path: Path) -> None:
    reloaded = row(messages=[{**kept, "trainable": False} for kept in row()["messages"]])
    (attempt,), _ = read(FORMAT, write(tmp_path / "x.parquet", parquet(reloaded)))
    assert attempt.num_sampled_turns == 0 and attempt.calls == []


def test_row_groups_are_read_one_by_one_and_resumed_at(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", parquet(*[row(number / 8) for number in range(5)], group=2))
    records = split(FORMAT, path)
    assert [(record.line, record.value["reward"]) for record in records] == [(n + 1, n / 8) for n in range(5)]
    assert [record.byte_start for record in records] == sorted(record.byte_start for record in records)
    assert list(FORMAT.split(path, records[1].byte_end)) == records[2:]
    # killed inside a row group: the whole group is read again
    assert list(FORMAT.split(path, records[2].byte_end)) == records[2:]
    assert list(FORMAT.split(path, records[4].byte_end)) == []


def test_a_row_of_another_shape_costs_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", parquet(row(), row(messages=None), row(messages=[message(None, "x")])))  # type: ignore[arg-type]
    good, none, nameless = FORMAT.split(path)
    assert isinstance(good, SourceRecord)
    assert isinstance(none, BadRecord) and isinstance(nameless, BadRecord)
    assert (none.reason, none.line, nameless.line) == ("wrong_shape", 2, 3)


def test_a_file_without_its_footer_waits(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", parquet(row())[:-20])
    assert list(FORMAT.split(path)) == [Unfinished(line=1, byte_start=0)]


def test_json_that_is_none_costs_what_it_says(tmp_path: Path) -> None:
    (attempt,), _ = read(FORMAT, write(tmp_path / "x.parquet", parquet(row(None, metadata="{", tools="{", metrics="["))))
    assert (attempt.task_id, attempt.tools, attempt.outcome) == (None, None, None)
