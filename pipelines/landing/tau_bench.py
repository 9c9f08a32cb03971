"""Format `tau_bench`: the results file of tau-bench's run.py, a JSON array with one item per attempt.

Such files name neither model nor times. (task_id, trial) is no identity, since forks write the same trial on every row:
an item's content and its number among equals is. The user is played by a model, so user turns are never trained on. A
row with an error and no messages is a fault of the run and no failed attempt, whatever reward it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Attempt, Bundle, Piece, Spelled, StoredRecord, call_entry, uniform
from pipelines.landing.head import Head
from pipelines.landing.json_array import split_array
from pipelines.landing.recorder import Message

REWARD_RANGE = (0.0, 1.0)


class Item(msgspec.Struct, kw_only=True):
    """One attempt; further keys stay in the stored record."""

    task_id: int | str
    reward: float
    traj: list[Message]
    info: dict[str, Any] | None = None
    trial: int | None = None


class TauBench:
    """The format; see LogFormat."""

    name = "tau_bench"
    parser_version = 1
    what = "tau-bench run.py results, one array item per attempt"
    gives = frozenset({"task_id", "outcome"})
    unique_calls = frozenset[str]()

    def detect(self, head: Head) -> bool:
        """An array whose first item has task_id, reward and traj."""
        return {"task_id", "reward", "traj"} <= head.item.keys()

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per item; the file is always read whole, since run.py writes it anew after every task."""
        return split_array(path, _facts, start)

    def spell(self, value: Any) -> Spelled:
        """The messages; only the assistant's are the policy's."""
        turns: list[dict[str, Any]] = []
        num_calls = 0
        for message in value["traj"]:
            sampled = message["role"] == "assistant"
            turns.append(uniform(message, call=num_calls if sampled else None))
            num_calls += sampled
        return Spelled(turns=turns, task_id=str(value["task_id"]))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of one item."""
        if len(records) != 1:
            raise ValueError(f"a tau_bench attempt is one record, not {len(records)}")
        (record,) = records
        value, spelled = record.value, record.spelled
        faulty = not spelled.turns and "error" in (value.get("info") or {})
        attempt = Attempt(
            record_ids=[record.record_id],
            turns=spelled.turns,
            calls=[call_entry() for turn in spelled.turns if turn["sampled"]],
            harness=self.name,
            task_id=spelled.task_id,
            attempt=value.get("trial"),
            outcome=None if faulty else value["reward"],
            outcome_range=REWARD_RANGE,
            outcome_source=None if faulty else "reward",
            fault="harness_error" if faulty else None,
        )
        return Bundle(attempts=[attempt])


def _facts(value: Any) -> Facts:
    try:
        item = msgspec.convert(value, Item)
    except msgspec.ValidationError as problem:
        raise BadPieceError("wrong_shape", str(problem)) from None
    low, high = REWARD_RANGE
    if not low <= item.reward <= high:
        raise BadPieceError("wrong_shape", f"reward {item.reward} is outside [{low}, {high}]")
    return Facts()
