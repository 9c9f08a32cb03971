"""Which answers of an attempt another log may hold as well, and what becomes of an attempt whose answers another one owns.

Harnesses that resume or fork a conversation under a new name write its earlier messages into the new file. The answers
there were sampled once, so they train once: in the attempt that was logged first. Everywhere else they are copied context.

They are known again by ids that are unique in the world, each together with what the answer says: of the answer (the
server's, or the log's own random one), of its tool calls, and where it has neither, of the last tool call before it.
Ids that count (`call_0`, `functions.Read:3`, `chatcmpl-417`) tell nothing and are left alone. Of a published log even random
looking ones tell nothing: in tau-bench's, 134 ids of tool calls stand for thousands of calls. A format says which may be used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipelines.landing.format import Attempt, LogFormat
from pipelines.landing.shapes import total
from pipelines.landing.stitching import shared_by_all

_RANDOM = re.compile(r"(?=[A-Za-z]*\d)[A-Za-z0-9]{16,}")
"""A run of letters and digits that is too long for chance: 16 hexadecimal digits are a span's id, the shortest in use."""

_KINDS = frozenset({"call", "tool_call"})

_TOOL_CALL = re.compile(r"(call|toolu|tooluse|fc|chatcmpl-tool)[-_]?[A-Za-z0-9_-]+")
"""How model servers name tool calls; others are named by harnesses, after tools and times."""


@dataclass(frozen=True)
class Claims:
    """Ids of an attempt's own answers, by which copies of them are known."""

    by_turn: dict[int, list[str]]
    """Number of a sampled turn -> its ids; turns without any are left out."""

    @property
    def ids(self) -> list[str]:
        """All of them, in the order of the turns."""
        return list(dict.fromkeys(found for ids in self.by_turn.values() for found in ids))


def claims_of(format: LogFormat, attempt: Attempt) -> Claims:
    """The ids of an attempt's answers; none where the format has none that are unique.

    An id that stands at two answers of one attempt is a constant and no name. Turns must have their `id`.
    """
    named, answers = _named(attempt, format.unique_calls)
    by_turn: dict[int, list[str]] = {}
    for number, (own, tool_calls, before) in named.items():
        said = attempt.turns[number]["id"]
        # together with what it says: a counter that was padded looks random, and stands for another answer elsewhere
        kept = [f"{found}+{said}" for found in (*own, *tool_calls) if answers[found] == 1]
        if not kept and before is not None and answers[before] <= 1:
            kept = [f"{before}+{said}"]
        if kept:
            by_turn[number] = kept
    return Claims(by_turn)


def names_of(attempt: Attempt) -> dict[int, list[str]]:
    """Number of a sampled turn -> every name by which a log of another format may know the answer.

    All kinds at once, since one log has the server's id of an answer and the other those of its tool calls; and that of the
    last tool call before it always, since of a last answer without tool calls that is what both have. Alone these names are
    weaker than claims: same_attempt.py drops those that one format holds twice.
    """
    named, answers = _named(attempt, _KINDS)
    by_turn: dict[int, list[str]] = {}
    for number, (own, tool_calls, before) in named.items():
        said = attempt.turns[number]["id"]
        kept = [found for found in (*own, *tool_calls) if answers[found] == 1]
        if before is not None and answers[before] <= 1:
            kept.append(before)
        by_turn[number] = list(dict.fromkeys(f"{found}+{said}" for found in kept))
    # who says the same twice after one tool call said it at two answers
    standing = Counter(found for found, _ in {(one, attempt.turns[turn]["call"]) for turn, ids in by_turn.items() for one in ids})
    told = {number: [found for found in ids if standing[found] == 1] for number, ids in by_turn.items()}
    return {number: ids for number, ids in told.items() if ids}


def without_copied(attempt: Attempt, claims: Claims, owners: Mapping[str, str]) -> tuple[Attempt, str | None]:
    """The attempt with the answers that others own as copied context, and the one that it goes on from (None: all are its own).

    `owners`: trajectory ids by claim, of those that others own. An answer that nothing names and that stands before a copied
    one was copied with it. Usage and model are those of the answers that are left.
    """
    foreign = {number: owner for number, ids in claims.by_turn.items() if (owner := _owner(ids, owners)) is not None}
    if not foreign:
        return attempt, None
    last = max(foreign)
    copied = {
        number
        for number, turn in enumerate(attempt.turns)
        if turn["sampled"] and (number in foreign or (number not in claims.by_turn and number < last))
    }
    kept = sorted({turn["call"] for number, turn in enumerate(attempt.turns) if turn["sampled"] and number not in copied})
    places = {call: place for place, call in enumerate(kept)}
    turns: list[dict[str, Any]] = []
    for number, turn in enumerate(attempt.turns):
        if number in copied:
            turn = {**turn, "sampled": False, "call": None}
        elif turn["sampled"]:
            turn = {**turn, "call": places[turn["call"]]}
        turns.append(turn)
    first_own = next((number for number, turn in enumerate(turns) if turn["sampled"]), len(turns))
    before = [number for number in copied if number < first_own]
    parent = foreign[max((number for number in foreign if number < first_own), default=last)]
    return (
        replace(
            attempt,
            turns=turns,
            calls=[attempt.calls[call] for call in kept],
            link="continuation",
            parent_ref=None,
            parent_tool_call_id=None,
            num_shared_turns=max(before, default=attempt.num_shared_turns - 1) + 1,
            **_usage(attempt, kept),
        ),
        parent,
    )


def _usage(attempt: Attempt, kept: list[int]) -> dict[str, Any]:
    """What is left of usage and model; null where the log does not tell it call by call."""
    names = ("num_prompt_tokens", "num_reply_tokens", "cost_usd")
    if len(attempt.usages) != len(attempt.calls):
        return dict.fromkeys(names)
    own = [attempt.usages[call] for call in kept]
    model = shared_by_all([usage.model for usage in own]) if own else attempt.model
    return {"model": model, "usages": own, **{name: total([getattr(usage, name) for usage in own]) for name in names}}


def _owner(ids: list[str], owners: Mapping[str, str]) -> str | None:
    return next((owners[found] for found in ids if found in owners), None)


def _is_unique(found: Any) -> bool:
    return isinstance(found, str) and _RANDOM.search(found.replace("-", "").replace("_", "")) is not None


def _is_tool_call(found: Any) -> bool:
    return _is_unique(found) and _TOOL_CALL.fullmatch(found) is not None


def _named(attempt: Attempt, kinds: Collection[str]) -> tuple[dict[int, tuple[list[str], list[str], str | None]], Counter[str]]:
    """Of every sampled turn the answer's own ids, those of its tool calls and the last tool call before it, of the kinds that
    count; and at how many answers each of these ids stands."""
    named: dict[int, tuple[list[str], list[str], str | None]] = {}
    last: str | None = None
    for number, turn in enumerate(attempt.turns):
        tool_calls = [call["id"] for call in turn.get("tool_calls") or () if _is_tool_call(call.get("id"))]
        if turn["sampled"]:
            call_id = attempt.calls[turn["call"]].get("call_id") if turn["call"] < len(attempt.calls) else None
            own = [call_id] if "call" in kinds and call_id is not None and _is_unique(call_id) else []
            asks = "tool_call" in kinds
            named[number] = own, list(dict.fromkeys(tool_calls)) if asks else [], last if asks else None
        last = tool_calls[-1] if tool_calls else last
    # one answer may be several turns, each with the answer's id
    standing = {(found, attempt.turns[number]["call"]) for number, (own, calls, _) in named.items() for found in (*own, *calls)}
    return named, Counter(found for found, _ in standing)
