"""From the messages of a conversation, each of which names the one before it, to attempts.

A conversation that was gone back in is a tree and no list. The path with the most answers (of equals that which ends last)
is the attempt; where another answer, an edited message or a retry goes off from it, that is a `branch`, whose first turns
are its parent's and not sampled again. A conversation that goes on under a shortened context, or one that a tool call
started, begins a tree of its own, and knows what it came from.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.landing.format import Attempt, Bundle, CallUsage, call_entry
from pipelines.landing.shapes import total
from pipelines.landing.stitching import shared_by_all


@dataclass(kw_only=True)
class Node:
    """One message: an answer of the model with all its pieces, a prompt, the results of an answer's tool calls."""

    key: str
    parent: str | None
    """Key of the message before it; None, or a key that is not there, where it begins a tree."""
    order: tuple[Any, ...]
    """By time; total over the nodes of a bundle."""
    record_ids: list[str] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    sampled: bool = False
    """The model wrote its assistant turns, here and not in the conversation that it was copied from."""
    copied: bool = False
    """Another conversation's own, repeated here."""
    call: dict[str, Any] = field(default_factory=call_entry)
    model: str | None = None
    num_prompt_tokens: int | None = None
    num_reply_tokens: int | None = None
    fault: str | None = None
    """What stopped the attempt here, if nothing was sampled after it."""
    outcome: float | None = None
    outcome_source: str | None = None
    snapshot: str | None = None
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    link: str | None = None
    """Of a node that begins a tree: how it comes from another attempt."""
    came_from: str | None = None
    """And the key of the node that it comes from."""
    parent_tool_call_id: str | None = None


@dataclass(kw_only=True, eq=False)
class Path:
    """Nodes that are one attempt."""

    own: list[Node]
    shared: list[Node]
    parent: Path | None

    @property
    def ref(self) -> str:
        """Its first own message names it."""
        return self.own[0].key

    @property
    def tells(self) -> bool:
        """There is an answer in it, or the failure to give one."""
        return any(node.sampled or node.fault == "model_error" for node in self.own)


def bundle_of(nodes: Sequence[Node], left: Mapping[str, tuple[str | None, str]], **facts: Any) -> Bundle:
    """The attempts of a bundle; `left` are records outside every node, by the key of the node that stands for them.

    Records of paths without any answer are left as `unanswered`. `facts` are further fields of every attempt.
    """
    found = paths(nodes)
    told = {path for path in found if path.tells}
    owners = {node.key: path for path in found for node in path.own}
    attempts = [_attempt(path, owners, told, facts) for path in found if path in told]
    places: dict[str, tuple[str | None, str]] = {}
    for path in found:
        if path not in told:
            parent = path.parent.ref if path.parent in told and path.parent else None
            places |= {record_id: (parent, "unanswered") for node in path.own for record_id in node.record_ids}
    for record_id, (key, kind) in left.items():
        owner = owners.get(key or "")
        places[record_id] = (owner.ref if owner in told and owner else None, kind)
    return Bundle(attempts=attempts, left=places)


def paths(nodes: Sequence[Node]) -> list[Path]:
    """The tree cut into paths, each node the own of one."""
    ordered = _parents_first(nodes)
    by_key = {node.key: node for node, _ in ordered}
    children: dict[str | None, list[str]] = {}
    for node, parent in ordered:
        children.setdefault(parent, []).append(node.key)
    worth: dict[str, tuple[int, tuple[Any, ...]]] = {}
    for node, _ in reversed(ordered):
        best = max((worth[child] for child in children.get(node.key, ())), default=(0, node.order))
        worth[node.key] = (best[0] + node.sampled, max(best[1], node.order))
    found: list[Path] = []
    begun: list[tuple[str, Path | None, list[Node]]] = [(root, None, []) for root in reversed(children.get(None, []))]
    while begun:
        start, parent, shared = begun.pop()
        path = Path(own=[by_key[start]], shared=shared, parent=parent)
        later: list[tuple[str, Path | None, list[Node]]] = []
        while following := children.get(path.own[-1].key):
            goes_on = max(following, key=lambda key: worth[key])
            before = [*shared, *path.own]
            later += [(key, path, before) for key in following if key != goes_on]
            path.own.append(by_key[goes_on])
        found.append(path)
        begun += reversed(later)
    return found


def _parents_first(nodes: Sequence[Node]) -> list[tuple[Node, str | None]]:
    """Nodes with their parents, each behind its parent and else in their order; a circle is cut at its first node."""
    ordered = sorted(nodes, key=lambda node: node.order)
    by_key = {node.key: node for node in ordered}
    parents = {node.key: node.parent if node.parent in by_key else None for node in ordered}
    done: set[str] = set()
    for node in ordered:
        walk: list[str] = []
        key: str | None = node.key
        on_walk: set[str] = set()
        while key is not None and key not in done and key not in on_walk:
            walk.append(key)
            on_walk.add(key)
            key = parents[key]
        if key in on_walk:
            circle = walk[walk.index(key or "") :]
            parents[min(circle, key=lambda key: by_key[key].order)] = None
        done |= on_walk
    children: dict[str | None, list[str]] = {}
    for node in ordered:
        children.setdefault(parents[node.key], []).append(node.key)
    found: list[tuple[Node, str | None]] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        key = waiting.pop()
        found.append((by_key[key], parents[key]))
        waiting += reversed(children.get(key, []))
    return found


def _attempt(path: Path, owners: Mapping[str, Path], told: set[Path], facts: Mapping[str, Any]) -> Attempt:
    turns: list[dict[str, Any]] = [{**turn, "sampled": False, "call": None} for node in path.shared for turn in node.turns]
    num_shared = len(turns)
    answers: list[Node] = []
    first = path.own[0]
    only_copied = path.parent is None
    for node in path.own:
        for turn in node.turns:
            sampled = node.sampled and turn["role"] == "assistant"
            turn = {**turn, "sampled": sampled, "call": len(answers) if sampled else None}
            if sampled and node.call["finish_reason"] is not None:
                turn["finish_reason"] = node.call["finish_reason"]
            turns.append(turn)
        only_copied = only_copied and node.copied
        if only_copied:
            num_shared = len(turns)
        if node.sampled:
            answers.append(node)
    link, came_from = ("branch", path.parent) if path.parent else (first.link, owners.get(first.came_from or ""))
    if path.parent is None and link is None and num_shared:
        link = "branch"
    if came_from is path:
        came_from = None
    outcomes = [(node.outcome, node.outcome_source) for node in path.own if node.outcome is not None]
    fault = _fault(path)
    return Attempt(
        **{
            "record_ids": [record_id for node in path.own for record_id in node.record_ids],
            "ref": path.ref,
            "turns": turns,
            "calls": [node.call for node in answers],
            "model": shared_by_all([node.model for node in answers]),
            "snapshot": next((node.snapshot for node in (*path.shared, *path.own) if node.snapshot is not None), None),
            "outcome": outcomes[-1][0] if outcomes and fault is None else None,
            "outcome_source": outcomes[-1][1] if outcomes and fault is None else None,
            "fault": fault,
            "started_at": min((node.started_at for node in path.own if node.started_at), default=None),
            "ended_at": max((node.ended_at for node in path.own if node.ended_at), default=None),
            "parent_ref": came_from.ref if came_from in told and came_from else None,
            "link": link,
            "parent_tool_call_id": None if path.parent else first.parent_tool_call_id,
            "num_shared_turns": num_shared,
            "num_prompt_tokens": total([node.num_prompt_tokens for node in answers]),
            "num_reply_tokens": total([node.num_reply_tokens for node in answers]),
            "usages": [
                CallUsage(model=node.model, num_prompt_tokens=node.num_prompt_tokens, num_reply_tokens=node.num_reply_tokens)
                for node in answers
            ],
            **facts,
        }
    )


def _fault(path: Path) -> str | None:
    """What stands behind the last answer: a conversation that went on after it was stopped did not end there."""
    fault = None
    for node in path.own:
        fault = node.fault or (None if node.sampled else fault)
    return fault
