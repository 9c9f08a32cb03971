"""What a coding agent's log tells, entry by entry, as attempts: a message, an answer of the model, a result.

Entries stand in a row, or hang on each other like the branches of a tree, and a summary may take the place of the earlier
ones: `attempts_of` cuts them into attempts.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.landing.format import Attempt, CallUsage, call_entry
from pipelines.landing.shapes import total
from pipelines.landing.stitching import shared_by_all

ROOT = ""
"""`parent` of an entry that hangs on none."""


@dataclass(kw_only=True)
class Entry:
    """One entry; its turns come from the record's `spelled`."""

    record_ids: list[str]
    turns: list[dict[str, Any]] = field(default_factory=list)
    id: str | None = None
    parent: str | None = None
    """The entry that it hangs on: an id, or ROOT; None (or an id that is not there): the one before it."""
    answers: bool = False
    """It is an answer of the logged policy, so its assistant turn is sampled (unless `copied`)."""
    copied: bool = False
    """Stands here only because the log began as a copy of another one."""
    kept: Sequence[str] | None = None
    """Of a compaction, whose turns are the summary: the ids of the entries that stay in the context behind it. None: it is no
    compaction."""
    num_kept_first: int = 0
    """Of a compaction: how many of the kept entries stand before the summary."""
    time: datetime.datetime | None = None
    model: str | None = None
    call_id: str | None = None
    finish_reason: str | None = None
    num_prompt_tokens: int | None = None
    num_reply_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    fault: str | None = None
    """What broke or stopped it; the attempt's fault where no turn came after it."""

    @property
    def sampled(self) -> bool:
        """The policy wrote it in this very log."""
        return self.answers and not self.copied


@dataclass(kw_only=True)
class _Stretch:
    """Entries that are one attempt, behind those that it only repeats."""

    ref: str
    before: list[Entry] = field(default_factory=list)
    own: list[Entry] = field(default_factory=list)
    parent: _Stretch | None = None
    link: str | None = None


def attempts_of(entries: Sequence[Entry], *, ref: str = "", link: str | None = None, **facts: Any) -> list[Attempt]:
    """The attempts of one log's entries, given in their order (each `id` once); none where there are no entries.

    The first attempt is called `ref`. Of several entries that hang on the same one the first goes on and the others begin
    branches, so that what comes later renames no earlier attempt. `link` says how the first attempt came about; `facts` are
    further fields of every attempt.
    """
    first = _Stretch(ref=ref, link=link or ("branch" if any(entry.copied for entry in entries) else None))
    stretches, behind = [first], _Contexts()
    for index, entry in enumerate(entries):
        parent = behind.parent_of(index, entry)
        if parent is None and index == 0:
            stretch = first
        elif entry.kept is not None:
            stretch = _Stretch(ref=f"{ref}/{entry.id or index}", parent=behind.stretch(parent, first), link="compaction")
            stretch.before = behind.compacted(index, entry, parent)
            stretches.append(stretch)
        elif parent is not None and parent not in behind.continued:
            stretch = behind.stretches[parent]
        else:
            stretch = _Stretch(ref=f"{ref}/{entry.id or index}", parent=behind.stretch(parent, first), link="branch")
            stretch.before = behind.context(parent)
            stretches.append(stretch)
        stretch.own.append(entry)
        behind.add(index, entry, parent, stretch)
    return [_attempt(stretch, facts) for stretch in stretches if stretch.own]


class _Contexts:
    """The tree so far."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.parents: list[int | None] = []
        self.stretches: list[_Stretch] = []
        self.continued: set[int] = set()
        self._places: dict[str, int] = {}
        self._compacted: dict[int, list[Entry]] = {}

    def parent_of(self, index: int, entry: Entry) -> int | None:
        """The entry that this one hangs on."""
        if entry.parent == ROOT or index == 0:
            return None
        return index - 1 if entry.parent is None else self._places.get(entry.parent, index - 1)

    def stretch(self, index: int | None, first: _Stretch) -> _Stretch:
        """The attempt that an entry is in."""
        return first if index is None else self.stretches[index]

    def add(self, index: int, entry: Entry, parent: int | None, stretch: _Stretch) -> None:
        """Keep an entry for those that hang on it."""
        self.entries.append(entry)
        self.parents.append(parent)
        self.stretches.append(stretch)
        if parent is not None:
            self.continued.add(parent)
        if entry.id is not None:
            self._places.setdefault(entry.id, index)

    def context(self, index: int | None) -> list[Entry]:
        """What the model saw at an entry: it and those before it, back to the last compaction."""
        found: list[Entry] = []
        while index is not None:
            if index in self._compacted:
                return [*self._compacted[index], *reversed(found)]
            found.append(self.entries[index])
            index = self.parents[index]
        return found[::-1]

    def compacted(self, index: int, entry: Entry, parent: int | None) -> list[Entry]:
        """The context behind a compaction: system prompt, summary, what was kept."""
        before, kept = self.context(parent), set(entry.kept or ())
        system = [other for other in before if other.turns and all(turn["role"] == "system" for turn in other.turns)]
        rest = [other for other in before if other.id in kept and other not in system]
        first = entry.num_kept_first
        self._compacted[index] = [*system, *rest[:first], entry, *rest[first:]]
        return self._compacted[index]


def _attempt(stretch: _Stretch, facts: dict[str, Any]) -> Attempt:
    calls = [entry for entry in stretch.own if entry.sampled and entry.turns]
    metered = [entry for entry in stretch.own if entry.sampled and (entry.turns or entry.num_prompt_tokens is not None)]
    model = shared_by_all([entry.model for entry in calls])
    turns = [_plain(turn) for entry in stretch.before for turn in entry.turns]
    num_shared = len(turns) if stretch.link == "branch" else 0
    number = 0
    for entry in stretch.own:
        if any(entry is before for before in stretch.before):
            continue  # a compaction: its summary stands before what was kept
        if entry.copied and num_shared == len(turns):
            num_shared += len(entry.turns)
        for turn in entry.turns:
            if entry.sampled and turn["role"] == "assistant":
                turn = {**turn, "sampled": True, "call": number}
                if entry.finish_reason is not None:
                    turn["finish_reason"] = entry.finish_reason
                turns.append(turn)
            else:
                turns.append(_plain(turn))
        number += entry.sampled and bool(entry.turns)
    spoken = [entry for entry in stretch.own if entry.turns or entry.fault]
    times = [entry.time for entry in stretch.own if entry.time is not None and not entry.copied]
    told: dict[str, Any] = {
        "record_ids": list(dict.fromkeys(record_id for entry in stretch.own for record_id in entry.record_ids)),
        "ref": stretch.ref,
        "turns": turns,
        "calls": [_call(entry, model) for entry in calls],
        "model": model,
        "fault": spoken[-1].fault if spoken else None,
        "started_at": min(times, default=None),
        "ended_at": max(times, default=None),
        "parent_ref": None if stretch.parent is None else stretch.parent.ref,
        "link": stretch.link,
        "num_shared_turns": num_shared,
        "num_prompt_tokens": total([entry.num_prompt_tokens for entry in metered]),
        "num_reply_tokens": total([entry.num_reply_tokens for entry in metered]),
        "cost_usd": total([entry.cost_usd for entry in metered]),
        "usages": [
            CallUsage(
                model=entry.model,
                num_prompt_tokens=entry.num_prompt_tokens,
                num_reply_tokens=entry.num_reply_tokens,
                cost_usd=entry.cost_usd,
            )
            for entry in calls
        ],
    }
    return Attempt(**{**told, **facts})


def _plain(turn: dict[str, Any]) -> dict[str, Any]:
    return {**turn, "sampled": False, "call": None}


def _call(entry: Entry, model: str | None) -> dict[str, Any]:
    call = call_entry(
        call_id=entry.call_id,
        prompt_token_ids=entry.prompt_token_ids,
        token_ids=entry.token_ids,
        finish_reason=entry.finish_reason,
    )
    # where several models took part, the attempt names none and each call its own
    return {**call, "model": entry.model} if model is None and entry.model is not None else call
