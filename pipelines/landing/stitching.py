"""From logged calls to attempts: which call goes on from which, by what their prompts repeat.

A gateway logs single calls. A call goes on from the one whose prompt and answer its own prompt repeats furthest (ids of
turns, spelling.py, so reasoning that was left out on the way back does not matter), of equals from the one that ended last
before it and has no successor yet. Chains of calls are attempts:

- a call with no such predecessor begins one;
- where two calls go on from one, the longer chain (then that which ends later) is the attempt, and the other a `branch`
  whose first turns are its parent's and not sampled again;
- several choices of one answer are attempts side by side;
- an assistant turn in a prompt that no call of the chain answered is a gap: it is counted and nobody's to train on;
- an answer that was never sent back stays the end of its chain.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.landing.format import Attempt, call_entry


@dataclass(kw_only=True)
class LoggedCall:
    """One request to a model and one answer (a call with several choices is several of these, with `choice` 0, 1, …)."""

    record_ids: list[str]
    """The records that hold it: mostly one; a stream's chunks."""
    prompt: list[dict[str, Any]]
    """Turns of the request, with `id`."""
    answer: dict[str, Any] | None
    """The turn that was sampled; None where the call failed."""
    call_id: str | None = None
    choice: int = 0
    entry: dict[str, Any] = field(default_factory=call_entry)
    """Its entry in the attempt's `calls`."""
    tools: list[Any] | None = None
    model: str | None = None
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    num_prompt_tokens: int | None = None
    num_reply_tokens: int | None = None
    cost_usd: float | None = None
    fault: str | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        """Total, and the same whatever the order of delivery: by time where there is one, then by length, then by id."""
        started = self.started_at or self.ended_at
        ended = self.ended_at or started
        # an attempt's longer prompts come later; ties are broken by ids, which name no place in a file
        return (
            started.timestamp() if started else 0.0,
            len(self.prompt),
            ended.timestamp() if ended else 0.0,
            self.call_id or "",
            self.record_ids[0],
            self.choice,
        )


@dataclass(kw_only=True)
class Chain:
    """Calls that are one attempt, in order."""

    calls: list[LoggedCall]
    own: list[LoggedCall]
    """Those that are not its parent's."""
    parent: Chain | None = None
    ref: str = ""
    num_shared_turns: int = 0
    link: str | None = None

    @property
    def last(self) -> LoggedCall:
        """The call whose prompt holds all before it."""
        return self.calls[-1]


def chains(calls: Sequence[LoggedCall]) -> list[Chain]:
    """The attempts of some calls, in a total order; `ref` of each is its first own call."""
    ordered = sorted(calls, key=lambda call: call.order)
    parents = _parents(ordered)
    children: dict[int | None, list[int]] = {}
    for index, parent in enumerate(parents):
        children.setdefault(parent, []).append(index)
    depth = [1] * len(ordered)
    ends = [call.order for call in ordered]
    for index in reversed(range(len(ordered))):  # a child always stands behind its parent
        if (parent := parents[index]) is not None and (depth[index] + 1, ends[index]) > (depth[parent], ends[parent]):
            depth[parent], ends[parent] = depth[index] + 1, ends[index]
    found: list[Chain] = []
    begun: list[tuple[int, Chain | None, list[int]]] = [(root, None, []) for root in reversed(children.get(None, []))]
    while begun:
        start, parent, shared = begun.pop()
        own = [start]
        chain = Chain(calls=[], own=[], parent=parent, ref=_ref(ordered[start]))
        later: list[tuple[int, Chain | None, list[int]]] = []
        while following := children.get(own[-1]):
            goes_on = max(following, key=lambda index: (depth[index], ends[index]))
            later += [(index, chain, [*shared, *own]) for index in following if index != goes_on]
            own.append(goes_on)
        chain.own = [ordered[index] for index in own]
        chain.calls = [ordered[index] for index in (*shared, *own)]
        if parent is not None:
            before = ordered[shared[-1]]
            chain.link, chain.num_shared_turns = "branch", len(before.prompt) + 1
        found.append(chain)
        begun += reversed(later)
    return found


def turns_of(chain: Chain, *, first_is_whole: bool = False) -> tuple[list[dict[str, Any]], int]:
    """The turns of a chain and the number of its gaps; `call` of a sampled turn is its place among the chain's own
    answered calls.

    `first_is_whole`: assistant turns in the first call's prompt are the harness's examples and no gaps, since such a log
    holds every call.
    """
    sampled_at = {len(call.prompt): (number, call) for number, call in enumerate(_answered(chain))}
    answered = {len(call.prompt) for call in chain.calls}
    examples = len(chain.calls[0].prompt) if first_is_whole else 0
    num_gaps = 0
    turns: list[dict[str, Any]] = []
    for position, turn in enumerate(chain.last.prompt):
        if position in sampled_at:
            turns.append(_sampled(*sampled_at[position]))
            continue
        turns.append({**turn, "sampled": False, "call": None})
        num_gaps += turn["role"] == "assistant" and position not in answered and position >= examples
    if chain.last.answer is not None:
        turns.append(_sampled(*sampled_at[len(chain.last.prompt)]))
    return turns, num_gaps


def attempt_of(chain: Chain, *, first_is_whole: bool = False, **facts: Any) -> Attempt:
    """The attempt that a chain is; `facts` are further fields of Attempt, which go before what the calls say."""
    turns, num_gaps = turns_of(chain, first_is_whole=first_is_whole)
    times = [time for call in chain.own for time in (call.started_at, call.ended_at) if time is not None]
    told: dict[str, Any] = {
        "record_ids": list(dict.fromkeys(record_id for call in chain.own for record_id in call.record_ids)),
        "ref": chain.ref,
        "turns": turns,
        "calls": [call.entry for call in _answered(chain)],
        "model": shared_by_all([call.model for call in chain.own]),
        "tools": chain.last.tools,
        "fault": chain.last.fault,
        "started_at": min(times, default=None),
        "ended_at": max(times, default=None),
        "parent_ref": None if chain.parent is None else chain.parent.ref,
        "link": chain.link,
        "num_shared_turns": chain.num_shared_turns,
        "num_gaps": num_gaps,
        "num_prompt_tokens": _total([call.num_prompt_tokens for call in chain.own]),
        "num_reply_tokens": _total([call.num_reply_tokens for call in chain.own]),
        "cost_usd": _total([call.cost_usd for call in chain.own]),
    }
    return Attempt(**{**told, **facts})


def shared_by_all(said: Sequence[Any]) -> Any:
    """What all calls say; None where they disagree, since no one version sampled such an attempt."""
    different = set(said)
    return different.pop() if len(different) == 1 else None


def _answered(chain: Chain) -> list[LoggedCall]:
    return [call for call in chain.own if call.answer is not None]


def _parents(ordered: Sequence[LoggedCall]) -> list[int | None]:
    """For each call the one that it goes on from.

    Prefixes are compared by running hashes, so that a long attempt costs its total length and not its square.
    """
    ends: dict[bytes, list[int]] = {}
    for index, call in enumerate(ordered):
        if call.answer is not None:
            ends.setdefault(_hashes([*call.prompt, call.answer])[-1], []).append(index)
    parents: list[int | None] = []
    succeeded: set[int] = set()
    for index, call in enumerate(ordered):
        found = None
        for hashed in reversed(_hashes(call.prompt)):
            before = [other for other in ends.get(hashed, ()) if other < index]
            if before:
                free = [other for other in before if other not in succeeded]
                found = (free or before)[-1]
                break
        if found is not None:
            succeeded.add(found)
        parents.append(found)
    return parents


def _hashes(turns: Sequence[dict[str, Any]]) -> list[bytes]:
    running, found = hashlib.sha256(), []
    for turn in turns:
        running.update(str(turn["id"]).encode() + b"\n")
        found.append(running.digest())
    return found


def _sampled(number: int, call: LoggedCall) -> dict[str, Any]:
    assert call.answer is not None
    # from the answer itself: what is sent back may have lost its reasoning
    turn = {**call.answer, "sampled": True, "call": number}
    if call.entry.get("finish_reason") is not None:
        turn["finish_reason"] = call.entry["finish_reason"]
    return turn


def _ref(call: LoggedCall) -> str:
    return f"{call.call_id or call.record_ids[0]}/{call.choice}"


def _total(counts: Sequence[Any]) -> Any:
    """None where any of them is missing: a sum over some calls is no sum."""
    return None if not counts or any(count is None for count in counts) else sum(counts)
