"""Conversations that somebody wrote or chose as examples: training sets, not logs of a policy at work.

No turn of them is sampled; what the assistant says is marked `is_demo`. A preference pair is two attempts, and which of them
was preferred is no score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Attempt, Bundle, Spelled, StoredRecord, uniform

Variants = dict[str, list[dict[str, Any]]]
"""Name of each conversation of a record ("" where there is one) -> its messages."""


def spelled(variants: Variants, tools: list[Any] | None) -> Spelled:
    """The turns of all conversations of a record, one behind the other."""
    turns = [uniform(message, call=None) for messages in variants.values() for message in messages]
    for turn in turns:
        if turn["role"] == "assistant":
            turn["is_demo"] = True
    return Spelled(turns=turns, tools=tools)


def bundle_of(records: Sequence[StoredRecord], variants_of: Callable[[Any], Variants]) -> Bundle:
    """One attempt per conversation of the one record that such a bundle is."""
    if len(records) != 1:
        raise ValueError(f"an example is one record, not {len(records)}")
    (record,) = records
    attempts, position = [], 0
    for name, messages in variants_of(record.value).items():
        turns = record.spelled.turns[position : position + len(messages)]
        position += len(messages)
        attempts.append(Attempt(record_ids=[record.record_id], ref=name, turns=turns, calls=[], tools=record.spelled.tools))
    return Bundle(attempts=attempts)


def facts_of(value: Any, variants_of: Callable[[Any], Variants], tools_of: Callable[[Any], list[Any] | None]) -> Facts:
    """Nothing but that it is an example: it has no id, no time and no siblings. BadPieceError where it holds a conversation
    without messages; fails like stage 2 would where it cannot be spelled."""
    if not isinstance(value, dict):
        raise BadPieceError("wrong_shape", "no object")
    variants = variants_of(value)
    if not variants or not all(variants.values()):
        raise BadPieceError("wrong_shape", "a conversation without messages")
    spelled(variants, tools_of(value))
    return Facts()
