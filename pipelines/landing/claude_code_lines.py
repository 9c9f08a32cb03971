"""The lines of one Claude Code session and their places in its tree. claude_code.py says what the lines are."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.ids import canonical_json
from pipelines.landing.conversation_tree import Node
from pipelines.landing.format import StoredRecord, text_of
from pipelines.landing.moments import moment

SYNTHETIC = "<synthetic>"
INTERRUPTED = "[Request interrupted by user"
SIDE = "side"
"""The thread of subagents whose lines do not name them."""
AGES_AGO = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


def is_api_error(value: dict[str, Any]) -> bool:
    """The harness shows that the model's server failed; no model sees this."""
    if value["type"] != "assistant":
        return False
    message = value["message"]
    said = text_of(message.get("content")) or ""
    return bool(value.get("isApiErrorMessage")) or (message.get("model") == SYNTHETIC and said.startswith("API Error"))


@dataclass(kw_only=True, eq=False)
class Line:
    """One line, with its place in the tree."""

    record: StoredRecord
    value: dict[str, Any]
    thread: str
    """Empty: the session itself; else the subagent."""
    uuid: str
    time: datetime.datetime
    parent: Line | None = None
    torn_off: bool = False
    """It names a parent that is not there."""
    depth: int = 0
    key: str | None = None
    """Of its node; None: a line about the session, which is no message."""

    @property
    def order(self) -> tuple[Any, ...]:
        """By time; of the same time, those before others in the tree go first."""
        return self.time, self.depth, self.record.byte_start, self.uuid

    @property
    def is_message(self) -> bool:
        """It is part of a conversation."""
        return self.value["type"] in ("user", "assistant")

    @property
    def results(self) -> list[str]:
        """Ids of the tool calls that it answers."""
        if self.value["type"] != "user":
            return []
        return [turn["tool_call_id"] for turn in self.record.spelled.turns if turn["role"] == "tool"]


@dataclass(kw_only=True)
class Conversation:
    """Lines, and the messages that they make up."""

    lines: list[Line]
    nodes: dict[str, Node] = field(default_factory=dict)
    members: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    asked_by: dict[str, str] = field(default_factory=dict)
    """Tool call -> key of the answer that asks for it."""


def lines_of(records: Sequence[StoredRecord]) -> tuple[list[Line], dict[str, Line]]:
    """One line per uuid and thread, the longest where it was written more than once, and the line that stands for each other."""
    candidates: dict[tuple[str, str], list[StoredRecord]] = defaultdict(list)
    for record in records:
        value = record.value
        thread = value.get("agentId") or (SIDE if value.get("isSidechain") else "")
        candidates[thread, value["uuid"]].append(record)
    lines, superseded = [], {}
    for (thread, uuid), written in candidates.items():
        best = max(written, key=lambda record: (len(canonical_json(record.value)), record.record_id))
        logged = best.value.get("timestamp")
        time = moment(logged) or AGES_AGO
        line = Line(record=best, value=best.value, thread=thread, uuid=uuid, time=time)
        lines.append(line)
        superseded |= {record.record_id: line for record in written if record is not best}
    return sorted(lines, key=lambda line: line.order), superseded


def find_parents(lines: Sequence[Line]) -> None:
    """Give every line its parent and its depth."""
    within = {(line.thread, line.uuid): line for line in lines}
    anywhere: dict[str, Line] = {}
    for line in lines:
        anywhere.setdefault(line.uuid, line)
    last: dict[str, Line] = {}
    for line in lines:
        if "parentUuid" not in line.value:  # a log without a tree is a list
            line.parent = last.get(line.thread)
        elif (named := line.value["parentUuid"]) is not None:
            line.parent = within.get((line.thread, named)) or anywhere.get(named)
            line.torn_off = line.parent is None
        last[line.thread] = line
    known: set[int] = set()
    for line in lines:
        walk: list[Line] = []
        on_walk: set[int] = set()
        at: Line | None = line
        while at is not None and id(at) not in known and id(at) not in on_walk:
            walk.append(at)
            on_walk.add(id(at))
            at = at.parent
        if at is not None and id(at) in on_walk:  # a circle has no first line but by time
            min(walk[walk.index(at) :], key=lambda line: (line.time, line.uuid)).parent = None
        known |= on_walk
    children: dict[int | None, list[Line]] = defaultdict(list)
    for line in lines:
        children[None if line.parent is None else id(line.parent)].append(line)
    waiting = list(children[None])
    while waiting:
        line = waiting.pop()
        line.depth = 0 if line.parent is None else line.parent.depth + 1
        waiting += children[id(line)]


def message_before(line: Line) -> Line | None:
    """The nearest message above a line."""
    at = line.parent
    while at is not None and not at.is_message:
        at = at.parent
    return at
