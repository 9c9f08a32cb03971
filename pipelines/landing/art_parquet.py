"""Format `art_parquet`: trajectory groups that ART (openpipe-art) writes, one Parquet file per step.

A row is one attempt: group_index (within its file), group_metadata, group_metrics, reward, metrics, metadata, tools (these
as JSON text), logs, messages [{role, content, tool_calls, tool_call_id, trainable}]. ART marks what its policy sampled as
`trainable`; a log that was loaded and written again marks nothing, and nothing of it can be trained on. Token ids and
logprobs are never written. Model, split and step stand in the path alone (`models/<model>/trajectories/<split>/<step>`),
so they become part of the record; what was logged for any other split than `train` was an evaluation.

RULER replaces the reward by its judge's score and keeps the earlier one as the metric `independent_reward`: that is the
outcome then, since a judge's score is none. Rows have no offsets of their own: each stands at its row group's bytes, and
`line` is its number in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Attempt, BadRecord, Bundle, Piece, Spelled, StoredRecord, call_entry, uniform
from pipelines.landing.head import Head
from pipelines.landing.pieces import bad, cut_file, made
from pipelines.landing.shapes import check, count, mapping, named, number, objects, readable, text

MAGIC = b"PAR1"
COLUMNS = {"group_index", "reward", "metrics", "metadata", "messages"}
TASK_NAMES = ("task_id", "scenario_id")
"""Keys of a metadata that name the task, where its author keeps one."""


class ArtParquet:
    """The format; see LogFormat."""

    name = "art_parquet"
    parser_version = 1
    what = "ART trajectory groups (Parquet)"
    gives = frozenset({"task_id", "outcome", "model"})
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """A Parquet file with the columns of trajectory groups."""
        if not head.raw.startswith(MAGIC):
            return False
        try:
            return set(pq.read_schema(head.path).names) >= COLUMNS
        except (OSError, pa.ArrowException):
            return False

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per row; the file is read by row groups, and those that end before `start` are left out."""
        try:
            file = pq.ParquetFile(path)
        except pa.ArrowException:  # its footer is written last
            yield cut_file(path, "a Parquet file without its footer")
            return
        facts = partial(self._facts, _logged_in(path))
        number_ = 1
        with file:
            for group in range(file.num_row_groups):
                begin, end = _place(file, group)
                num_rows = file.metadata.row_group(group).num_rows
                if end > start:
                    for place, row in enumerate(file.read_row_group(group).to_pylist()):
                        last = place == num_rows - 1
                        yield _piece(facts, row, number_ + place, begin, end if last else begin)
                number_ += num_rows

    def spell(self, value: Any) -> Spelled:
        """The messages; those that ART may train on are the policy's."""
        turns: list[dict[str, Any]] = []
        num_calls = 0
        for message in value["messages"]:
            sampled = message.get("trainable") is True
            calls = _json(message.get("tool_calls"))
            chat = {**message, "tool_calls": objects(calls)}
            if not isinstance(chat["role"], str):
                raise TypeError("a message has no role")
            turns.append(uniform(chat, call=num_calls if sampled else None))
            num_calls += sampled
        tools = _json(value.get("tools"))
        places = [mapping(_json(value.get("metadata"))), mapping(_json(value.get("group_metadata")))]
        names = (named(place.get(key)) for place in places for key in TASK_NAMES)
        return Spelled(
            turns=turns,
            tools=tools if isinstance(tools, list) and tools else None,
            task_id=next((name for name in names if name is not None), None),
        )

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of one row."""
        if len(records) != 1:
            raise ValueError(f"an art_parquet attempt is one record, not {len(records)}")
        (record,) = records
        value, spelled = record.value, record.spelled
        metrics = mapping(_json(value.get("metrics")))
        judged = "ruler_score" in metrics
        outcome = number(metrics.get("independent_reward")) if judged else number(value.get("reward"))
        logged = mapping(value.get("logged_in"))
        model, step = text(logged.get("model")), count(logged.get("step"))
        attempt = Attempt(
            record_ids=[record.record_id],
            turns=spelled.turns,
            calls=[call_entry() for turn in spelled.turns if turn["sampled"]],
            task_id=spelled.task_id,
            purpose="evaluation" if text(logged.get("split")) not in (None, "train") else "production",
            policy_version=None if model is None or step is None else f"{model}@{step}",
            model=model,
            tools=spelled.tools,
            outcome=outcome,
            outcome_source=None if outcome is None else "metrics.independent_reward" if judged else "reward",
        )
        return Bundle(attempts=[attempt])

    def _facts(self, logged: dict[str, Any] | None, row: Any) -> Facts:
        check(isinstance(row.get("messages"), list), "messages is no list")
        value = row if logged is None else {**row, "logged_in": logged}
        readable(self.spell, value)
        return Facts(value=value)


def _piece(facts: Any, row: Any, line: int, begin: int, end: int) -> Piece:
    try:
        return made(facts(row), row, line=line, begin=begin, end=end)
    except (BadPieceError, orjson.JSONEncodeError) as problem:
        refused = problem if isinstance(problem, BadPieceError) else BadPieceError("wrong_shape", f"no plain row: {problem}")
        whole = bad(repr(row).encode(), line, begin, refused)
        return BadRecord(line=line, byte_start=begin, byte_end=end, reason=whole.reason, detail=whole.detail, raw=whole.raw)


def _place(file: pq.ParquetFile, group: int) -> tuple[int, int]:
    columns = file.metadata.row_group(group)
    chunks = [columns.column(number_) for number_ in range(columns.num_columns)]
    begins = [min(o for o in (chunk.dictionary_page_offset, chunk.data_page_offset) if o is not None) for chunk in chunks]
    ends = [begin + chunk.total_compressed_size for begin, chunk in zip(begins, chunks, strict=True)]
    return min(begins), max(ends)


def _logged_in(path: Path) -> dict[str, Any] | None:
    """Model, split and step of `…/models/<model>/trajectories/<split>/<step>.parquet`; None where it lies elsewhere."""
    parts = path.absolute().parts
    if len(parts) < 5 or parts[-5] != "models" or parts[-3] != "trajectories" or not path.stem.isdigit():
        return None
    return {"model": parts[-4], "split": parts[-2], "step": int(path.stem)}


def _json(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
