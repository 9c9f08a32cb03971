"""From logged calls to attempts: which call goes on from which, by what their prompts repeat.

A gateway logs single calls. A call goes on from the one whose prompt and answer its own prompt repeats furthest (ids of
turns, spelling.py, so reasoning that was left out on the way back does not matter), of equals from the one that ended last
before it and has no successor yet. Chains of calls are attempts:

- a call with no such predecessor begins one;
- where two calls go on from one, the longer chain (then that which ends later) is the attempt, a call that failed last of
  all, and the other a `branch`
  whose first turns are its parent's and not sampled again;
- a call whose prompt repeats an answer of an earlier one, but not all that stood before it, goes on under a shortened
  context: a `compaction`, linked to the attempt that it shortens, whose answers are copied context in it;
- several choices of one answer are attempts side by side;
- an assistant turn in a prompt that no call of the chain answered is a gap: it is counted and nobody's to train on;
- an answer that was never sent back stays the end of its chain.
"""

from __future__ import annotations

import datetime
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.landing.format import Attempt, CallUsage, call_entry
from pipelines.landing.shapes import total


@dataclass(kw_only=True)
class LoggedCall:
    """One request to a model and one answer (a call with several choices is several of these, with `choice` 0, 1, …)."""

    record_ids: list[str]
    """The records that hold it: mostly one; a stream's chunks."""
    prompt: list[dict[str, Any]]
    """Turns of the request, with `id`."""
    answer: dict[str, Any] | None
    """The turn that was sampled; None where the call failed."""
    before: list[dict[str, Any]] = field(default_factory=list)
    """Turns of the same response that stand before `answer`: what was sampled and what the vendor's own tools said to it."""
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
    def whole(self) -> list[dict[str, Any]]:
        """What a call that goes on from this one repeats."""
        return self.prompt if self.answer is None else [*self.prompt, *self.before, self.answer]

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


def chains(calls: Sequence[LoggedCall], *, one_conversation: bool = False) -> list[Chain]:
    """The attempts of some calls, in a total order; `ref` of each is its first own call.

    `one_conversation`: the log itself says that these calls belong together, so an attempt that begins with an earlier one's
    request is linked to it even where nothing that was answered there comes back in it.
    """
    ordered = _ordered(calls)
    tree = _Tree(ordered)
    named = Counter(call.call_id for call in ordered if call.choice == 0)
    found: list[Chain] = []
    owner: dict[int, Chain] = {}
    begun: list[tuple[int, Chain | None, list[int]]] = [(root, None, []) for root in reversed(tree.children.get(None, []))]
    while begun:
        start, parent, shared = begun.pop()
        own, later = [start], list[tuple[int, Chain | None, list[int]]]()
        chain = Chain(calls=[], own=[], parent=parent, ref=_ref(ordered[start], unique=named[ordered[start].call_id] == 1))
        while following := tree.children.get(own[-1]):
            goes_on = tree.goes_on(following)
            later += [(index, chain, [*shared, *own]) for index in following if index != goes_on]
            if goes_on is None:
                break
            own.append(goes_on)
        chain.own = [ordered[index] for index in own]
        chain.calls = [ordered[index] for index in (*shared, *own)]
        owner.update(dict.fromkeys(own, chain))
        if parent is not None:
            chain.link = "compaction" if tree.repeats[start] is not None else "branch"
            chain.num_shared_turns = len(ordered[shared[-1]].whole)
        elif (repeated := tree.repeats[start]) is not None:
            _link(chain, owner[repeated])
        found.append(chain)
        begun += reversed(later)
    if one_conversation:
        _link_requests(found)
    return found


def turns_of(chain: Chain, *, first_is_whole: bool = False) -> tuple[list[dict[str, Any]], int]:
    """The turns of a chain and the number of its gaps; `call` of a sampled turn is its place among the chain's own
    answered calls.

    `first_is_whole`: assistant turns in the first call's prompt are the harness's examples and no gaps, since such a log
    holds every call.
    """
    sampled_at: dict[int, tuple[int, LoggedCall, dict[str, Any]]] = {}
    answered: set[int] = set()
    for number, call in enumerate(_answered(chain)):
        for position, turn in enumerate(call.whole[len(call.prompt) :], start=len(call.prompt)):
            sampled_at[position] = (number, call, turn)
    for call in chain.calls:
        answered.update(range(len(call.prompt), len(call.whole)))
    examples = len(chain.calls[0].prompt) if first_is_whole else 0
    num_gaps = 0
    elsewhere: set[Any] | None = None
    turns: list[dict[str, Any]] = []
    for position, turn in enumerate(chain.last.whole):
        if position in sampled_at:
            turns.append(_sampled(*sampled_at[position]))
            continue
        turns.append({**turn, "sampled": False, "call": None})
        if turn["role"] == "assistant" and position not in answered and position >= examples:
            elsewhere = _answered_before(chain) if elsewhere is None else elsewhere
            num_gaps += turn["id"] not in elsewhere
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
        # a request may name the model otherwise than the answers do
        "model": shared_by_all([call.model for call in _answered(chain) or chain.own]),
        # harnesses leave the tools out where none may be called any more
        "tools": next((call.tools for call in reversed(chain.calls) if call.tools), None),
        "fault": chain.last.fault,
        "started_at": min(times, default=None),
        "ended_at": max(times, default=None),
        "parent_ref": None if chain.parent is None else chain.parent.ref,
        "link": chain.link,
        "num_shared_turns": chain.num_shared_turns,
        "num_gaps": num_gaps,
        "num_prompt_tokens": total([call.num_prompt_tokens for call in chain.own]),
        "num_reply_tokens": total([call.num_reply_tokens for call in chain.own]),
        "cost_usd": total([call.cost_usd for call in chain.own]),
        "usages": [
            CallUsage(
                model=call.model,
                num_prompt_tokens=call.num_prompt_tokens,
                num_reply_tokens=call.num_reply_tokens,
                cost_usd=call.cost_usd,
            )
            for call in _answered(chain)
        ],
    }
    return Attempt(**{**told, **facts})


def shared_by_all(said: Sequence[Any]) -> Any:
    """What all calls say; None where they disagree, since no one version sampled such an attempt."""
    different = set(said)
    return different.pop() if len(different) == 1 else None


def _answered(chain: Chain) -> list[LoggedCall]:
    return [call for call in chain.own if call.answer is not None]


def _ordered(calls: Sequence[LoggedCall]) -> list[LoggedCall]:
    """In their order of time; where one has no time, times say nothing of all: longer prompts come later."""
    if all(call.started_at or call.ended_at for call in calls):
        return sorted(calls, key=lambda call: call.order)
    return sorted(calls, key=lambda call: call.order[1:])


class _Tree:
    """Which call goes on from which."""

    def __init__(self, ordered: Sequence[LoggedCall]) -> None:
        self.ordered = ordered
        self.parents: list[int | None] = []
        self.repeats: list[int | None] = []
        """For each call one whose answer its prompt repeats although it does not go on from that: a shortened context."""
        self._find()
        self.children: dict[int | None, list[int]] = {}
        for index, parent in enumerate(self.parents):
            self.children.setdefault(parent, []).append(index)
        # a call that failed weighs nothing beside one that was answered, whichever came first
        self.weight = [(0 if call.answer is None else 1, index) for index, call in enumerate(ordered)]
        for index in reversed(range(len(ordered))):  # a child always stands behind its parent
            if (parent := self.parents[index]) is not None and self.repeats[index] is None:
                depth, end = self.weight[index]
                self.weight[parent] = max(self.weight[parent], (depth + 1, end))

    def goes_on(self, following: Sequence[int]) -> int | None:
        """Of the calls that go on from one, that which is the same attempt: never one under a shortened context."""
        same = [index for index in following if self.repeats[index] is None]
        return max(same, key=lambda index: self.weight[index], default=None)

    def _find(self) -> None:
        """Prefixes are compared by running hashes and each hash remembers its last calls, so that the cost is the length of
        all prompts together, however many calls are equal."""
        last: dict[bytes, int] = {}
        free: dict[bytes, list[int]] = {}
        """Calls by the hash of prompt and answer, those without a successor."""
        answers: dict[tuple[Any, Any], int] = {}
        """Calls by their answer and what stood right before it: short answers come again in many places."""
        for index, call in enumerate(self.ordered):
            hashes = _hashes(call.whole)
            found, kept = None, 0
            for length in range(len(call.prompt), 0, -1):
                hashed = hashes[length - 1]
                if hashed in last:
                    found, kept = (free[hashed].pop() if free[hashed] else last[hashed]), length
                    break
            repeated = None
            for position in range(len(call.prompt) - 1, max(kept, 1) - 1, -1):
                turn = call.prompt[position]
                before = answers.get((call.prompt[position - 1]["id"], turn["id"])) if turn["role"] == "assistant" else None
                if before is not None and self._is_beside(before, found):
                    repeated = before
                    break
            self.parents.append(found)
            self.repeats.append(repeated)
            if call.answer is not None:
                last[hashes[-1]] = index
                free.setdefault(hashes[-1], []).append(index)
                answers[call.whole[-2]["id"] if len(call.whole) > 1 else None, call.answer["id"]] = index

    def _is_beside(self, other: int, found: int | None) -> bool:
        """Whether a call comes from another one and is not what that one comes from: an equal answer further up, or in an
        attempt that shares nothing, says nothing."""
        if found is None:
            return True
        position: int | None = other
        while position is not None and position > found:
            position = self.parents[position]
        return position == found and other != found


def _link(chain: Chain, parent: Chain) -> None:
    """A chain whose first prompt holds answers of another, but not its whole beginning."""
    first, whole = chain.own[0].prompt, parent.last.whole
    chain.parent, chain.num_shared_turns = parent, _num_alike(first, whole)
    chain.link = "compaction" if len(first) <= len(whole) else "branch"


def _link_requests(found: Sequence[Chain]) -> None:
    """Of one conversation: a chain that begins with an earlier one's request and then differs is an edit of it, or, where it comes
    after that one's end with a shorter prompt, goes on under a shortened context. Equal prompts are attempts side by side."""
    known: dict[bytes, Chain] = {}
    for chain in found:
        first = chain.own[0]
        hashes = _hashes(first.prompt)
        if chain.parent is None:
            for length in range(len(first.prompt) - 1, 0, -1):
                if (parent := known.get(hashes[length - 1])) is None:
                    continue
                if any(turn["role"] not in ("system", "developer") for turn in first.prompt[:length]):
                    shorter = len(first.prompt) < len(parent.last.prompt) and first.order > parent.last.order
                    chain.parent, chain.num_shared_turns = parent, length
                    chain.link = "compaction" if shorter else "branch"
                break
        for hashed in _hashes(chain.last.whole):
            known[hashed] = chain


def _answered_before(chain: Chain) -> set[Any]:
    """Ids of the answers of the attempts that this one comes from."""
    found: set[Any] = set()
    parent = chain.parent
    while parent is not None:
        found.update(call.answer["id"] for call in parent.own if call.answer is not None)
        parent = parent.parent
    return found


def _num_alike(turns: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> int:
    common = 0
    for turn, other in zip(turns, others, strict=False):
        if turn["id"] != other["id"]:
            break
        common += 1
    return common


def _hashes(turns: Sequence[dict[str, Any]]) -> list[bytes]:
    running, found = hashlib.sha256(), []
    for turn in turns:
        running.update(str(turn["id"]).encode() + b"\n")
        found.append(running.digest())
    return found


def _sampled(number: int, call: LoggedCall, turn: dict[str, Any]) -> dict[str, Any]:
    # from the answer itself: what is sent back may have lost its reasoning
    if turn["role"] != "assistant":  # what a tool of the vendor's said
        return {**turn, "sampled": False, "call": None}
    sampled = {**turn, "sampled": True, "call": number}
    if turn is call.answer and call.entry.get("finish_reason") is not None:
        sampled["finish_reason"] = call.entry["finish_reason"]
    return sampled


def _ref(call: LoggedCall, *, unique: bool) -> str:
    """By its vendor's id where no other call of the bundle has the same."""
    return f"{call.call_id if call.call_id and unique else call.record_ids[0]}/{call.choice}"
