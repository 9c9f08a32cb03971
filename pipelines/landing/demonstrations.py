"""Conversations that somebody wrote or chose as examples: training sets, not logs of a policy at work.

No turn of them is sampled; what the assistant says is marked `is_demo`. A preference pair is two attempts, and which of them
was preferred is no score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.landing.decoding import BadPieceError
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


def bundle_of(record: StoredRecord, variants: Variants) -> Bundle:
    """One attempt per conversation."""
    attempts, position = [], 0
    for name, messages in variants.items():
        turns = record.spelled.turns[position : position + len(messages)]
        position += len(messages)
        attempts.append(Attempt(record_ids=[record.record_id], ref=name, turns=turns, calls=[], tools=record.spelled.tools))
    return Bundle(attempts=attempts)


def checked(variants: Mapping[str, list[dict[str, Any]]], spell: Callable[[], Any]) -> None:
    """BadPieceError where there is no conversation, or one that cannot be spelled."""
    if not variants or not all(variants.values()):
        raise BadPieceError("wrong_shape", "a conversation without messages")
    spell()
