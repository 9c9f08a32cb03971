"""Identities of what a record says, taken before redaction and found again after it.

A turn's `id` is who said what: role, text, the names and arguments of its calls; not the ids of calls, which differ between
equal answers, and not the reasoning, which many harnesses leave out when they send an answer back (that is `reasoning_id`).
Text counts without white space around it and arguments by their meaning, since frameworks write both anew.
"""

from __future__ import annotations

from typing import Any

import orjson

from pipelines.ids import Identity, canonical_json
from pipelines.landing.format import Spelled
from pipelines.landing.naming import NOTHING, Naming


def spoken(turn: dict[str, Any]) -> bytes:
    """What makes two turns the same: who says what, in the one spelling that identities are taken over."""
    role = "system" if turn["role"] == "developer" else turn["role"]
    content = turn.get("content")
    calls = [_call(call) for call in turn.get("tool_calls") or ()]
    said = content.strip() if isinstance(content, str) else content or ""
    return canonical_json([role, said, calls, None if role == "tool" else turn.get("name")])


def turn_id(identity: Identity, turn: dict[str, Any]) -> str:
    """Who said what."""
    return identity.of("turn", spoken(turn))


def reasoning_id(identity: Identity, turn: dict[str, Any]) -> str | None:
    """Of a turn's reasoning; None where it has none."""
    reasoning = turn.get("reasoning")
    return None if not reasoning else identity.of("turn", "reasoning", canonical_json(reasoning))


def identities(identity: Identity, spelled: Spelled, naming: Naming = NOTHING, value: Any = None) -> dict[str, Any]:
    """The identities of a record's turns, tools, task id and snapshot; JSON types only, null where it has none.

    `naming`: what of `value`, the record itself, is kept besides since tasks or runs are named by it (naming.py).
    """
    turns = [[turn_id(identity, turn), reasoning_id(identity, turn)] for turn in spelled.turns]
    return {
        "turns": turns,
        "tools": None if spelled.tools is None else identity.tools_id(spelled.tools),
        "task_id": None if spelled.task_id is None else identity.name_id(spelled.task_id),
        "snapshot": None if spelled.snapshot is None else identity.name_id(spelled.snapshot),
        **(naming.kept(identity, spelled.turns, [str(said) for said, _ in turns], value) if naming else {}),
    }


def with_identities(
    identity: Identity, spelled: Spelled, stored: dict[str, Any] | None, naming: Naming = NOTHING
) -> dict[str, Any]:
    """Give every turn its `id` and `reasoning_id`, and return the record's identities.

    `stored` are those that landing kept since redaction changed the record; None: the text is as it was logged. Where a
    mended parser reads other turns than landing did, the stored ones fit no more and those of the redacted text stand.
    Where something is volatile, every turn gets its `masked_id` too.
    """
    computed = identities(identity, spelled) if stored is None or len(stored["turns"]) != len(spelled.turns) else stored
    for turn, (said, reasoned) in zip(spelled.turns, computed["turns"], strict=True):
        turn["id"], turn["reasoning_id"] = said, reasoned
    masked = naming.masked_ids(identity, spelled.turns, [said for said, _ in computed["turns"]], stored)
    for turn, masked_id in zip(spelled.turns, masked or (), strict=False):
        turn["masked_id"] = masked_id
    return computed


def _call(call: dict[str, Any]) -> list[Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = orjson.loads(arguments)
        except orjson.JSONDecodeError:
            arguments = arguments.strip()
    return [function.get("name"), arguments]
