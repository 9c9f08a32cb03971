"""The lines of one Claude Code session -> the messages of its conversations -> attempts. claude_code.py says what the lines are."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pipelines.ids import canonical_json
from pipelines.landing.conversation_tree import Node, bundle_of
from pipelines.landing.decoding import utc
from pipelines.landing.format import Bundle, StoredRecord, call_entry, merged, text_of

SYNTHETIC = "<synthetic>"
INTERRUPTED = "[Request interrupted by user"
AGENT_TOOLS = ("Task", "Agent")
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
class _Session:
    lines: list[Line]
    nodes: dict[str, Node] = field(default_factory=dict)
    members: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    asked_by: dict[str, str] = field(default_factory=dict)
    """Tool call -> key of the answer that asks for it."""


def bundle(records: Sequence[StoredRecord]) -> Bundle:
    """The attempts of one session and its subagents."""
    lines, superseded = _lines(records)
    session = _Session(lines=lines)
    _find_parents(lines)
    _name_nodes(session)
    loose = _place_notes(session)
    for key, members in session.members.items():
        session.nodes[key] = _node(key, members)
    _own_once(session)
    _connect(session)
    left: dict[str, tuple[str | None, str]] = {record_id: (line.key, "superseded") for record_id, line in superseded.items()}
    left |= {line.record.record_id: (None, "unanswered") for line in loose}
    return bundle_of(list(session.nodes.values()), left)


def _lines(records: Sequence[StoredRecord]) -> tuple[list[Line], dict[str, Line]]:
    """One line per uuid and thread, the longest where it was written more than once, and the line that stands for each other."""
    candidates: dict[tuple[str, str], list[StoredRecord]] = defaultdict(list)
    for record in records:
        value = record.value
        thread = value.get("agentId") or ("side" if value.get("isSidechain") else "")
        candidates[thread, value["uuid"]].append(record)
    lines, superseded = [], {}
    for (thread, uuid), written in candidates.items():
        best = max(written, key=lambda record: (len(canonical_json(record.value)), record.record_id))
        logged = best.value.get("timestamp")
        time = utc(logged) if isinstance(logged, str) else AGES_AGO
        line = Line(record=best, value=best.value, thread=thread, uuid=uuid, time=time)
        lines.append(line)
        superseded |= {record.record_id: line for record in written if record is not best}
    return sorted(lines, key=lambda line: line.order), superseded


def _find_parents(lines: Sequence[Line]) -> None:
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


def _name_nodes(session: _Session) -> None:
    """Lines of one message.id are one node, so are the results of its tool calls; every other message is its own."""
    messages = sorted((line for line in session.lines if line.is_message), key=lambda line: line.order)
    asked_by: dict[tuple[str, str], str] = {}
    for line in messages:
        if line.value["type"] == "assistant":
            line.key = f"{line.thread}/{line.value['message'].get('id') or line.uuid}"
            for turn in line.record.spelled.turns:
                for call in turn.get("tool_calls") or ():
                    asked_by.setdefault((line.thread, call["id"]), line.key)
                    session.asked_by.setdefault(call["id"], line.key)
    for line in messages:
        if line.key is None:
            asked = next((key for call in line.results if (key := asked_by.get((line.thread, call)))), None)
            line.key = f"{asked}/results" if asked else f"{line.thread}/{line.uuid}"
        session.members[line.key].append(line)


def _place_notes(session: _Session) -> list[Line]:
    """Lines about the session go with the message before them, else with the first after them; those with neither are loose."""
    after: dict[int, Line] = {}
    for line in sorted((line for line in session.lines if line.is_message), key=lambda line: line.order):
        at = line.parent
        while at is not None and not at.is_message and id(at) not in after:
            after[id(at)] = line
            at = at.parent
    loose = []
    for line in session.lines:
        if line.is_message:
            continue
        before = _message_before(line)
        key = before.key if before is not None else after[id(line)].key if id(line) in after else None
        if key is None:
            loose.append(line)
        else:
            session.members[key].append(line)
    return loose


def _message_before(line: Line) -> Line | None:
    at = line.parent
    while at is not None and not at.is_message:
        at = at.parent
    return at


def _node(key: str, members: list[Line]) -> Node:
    members.sort(key=lambda line: (line.depth, *line.order))
    said = [line for line in members if line.is_message]
    values = [line.value for line in said]
    first = said[0]
    times = [line.time for line in members if line.time != AGES_AGO]
    error = any(is_api_error(value) for value in values)
    stopped = any((text_of(value["message"].get("content")) or "").startswith(INTERRUPTED) for value in values)
    node = Node(
        key=key,
        parent=None,
        order=(first.time, first.depth, first.record.byte_start, key),
        record_ids=[line.record.record_id for line in members],
        turns=_turns(said),
        copied=all("forkedFrom" in value for value in values),
        fault="model_error" if error else "aborted" if stopped else None,
        snapshot=next((line.record.spelled.snapshot for line in said if line.record.spelled.snapshot), None),
        started_at=min(times, default=None),
        ended_at=max(times, default=None),
    )
    if first.value["type"] == "assistant":
        sent = [value["message"] for value in values]
        node.model = next((message["model"] for message in sent if isinstance(message.get("model"), str)), None)
        node.sampled = not node.copied and node.model != SYNTHETIC and bool(node.turns) and not error
        reason = next((m["stop_reason"] for m in reversed(sent) if isinstance(m.get("stop_reason"), str)), None)
        node.call = call_entry(call_id=sent[0].get("id"), finish_reason=reason)
        node.num_prompt_tokens, node.num_reply_tokens = _usage(sent)
    return node


def _turns(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Pieces of one answer joined to a turn, each piece once however often it was logged; results once per tool call."""
    turns: list[dict[str, Any]] = []
    pieces: list[dict[str, Any]] = []
    seen: set[bytes] = set()
    for line in lines:
        for turn in line.record.spelled.turns:
            calls = [call["id"] for call in turn.get("tool_calls") or ()]
            what = [turn.get("tool_call_id")] if turn["role"] == "tool" else [turn["id"], turn["reasoning_id"], calls]
            if (mark := orjson.dumps([turn["role"], *what])) in seen:
                continue
            seen.add(mark)
            if turn["role"] == "assistant":
                pieces.append(turn)
                continue
            if pieces:
                turns.append(merged(pieces))
                pieces = []
            turns.append(turn)
    return [*turns, merged(pieces)] if pieces else turns


def _usage(sent: Iterable[dict[str, Any]]) -> tuple[int | None, int | None]:
    """Of one answer, which every line of it repeats; the first lines may hold what was known when they were streamed."""
    found = [message["usage"] for message in sent if isinstance(message.get("usage"), dict)]
    found = [usage for usage in found if isinstance(usage.get("output_tokens"), int)]
    if not found:
        return None, None
    usage = max(found, key=lambda usage: (usage["output_tokens"], orjson.dumps(usage, option=orjson.OPT_SORT_KEYS)))
    prompt = [usage.get(name) for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
    return (sum(count for count in prompt if isinstance(count, int)) if prompt[0] is not None else None), usage["output_tokens"]


def _own_once(session: _Session) -> None:
    """A subagent that starts with a copy of the conversation sampled none of it: an answer is the session's own, else that
    of the agent who has it first."""
    owners: dict[str, Node] = {}
    for node in sorted(session.nodes.values(), key=lambda node: (not node.key.startswith("/"), node.order)):
        call_id = node.call["call_id"]
        if node.sampled and call_id is not None and owners.setdefault(call_id, node) is not node:
            node.sampled, node.copied = False, True


def _connect(session: _Session) -> None:
    """Parents of nodes; for those that begin a tree, what they come from."""
    started = _started(session)
    by_uuid: dict[str, Line] = {}
    for line in session.lines:
        by_uuid.setdefault(line.uuid, line)
    latest: dict[str, Node] = {}
    taken: set[str] = set()
    for node in sorted(session.nodes.values(), key=lambda node: node.order):
        first = next(line for line in session.members[node.key] if line.is_message)
        compacted, before = _compaction(first, by_uuid)
        parent = None if compacted or first.parent is None else _before(first, node.key)
        if node.key.endswith("/results"):
            node.parent = node.key.removesuffix("/results")
        elif parent is not None and parent.thread == first.thread:
            node.parent = parent.key
        elif compacted:
            node.link = "compaction"
            node.came_from = before.key if before is not None else latest[first.thread].key if first.thread in latest else None
        elif first.thread:
            node.link = "subagent"
            node.parent_tool_call_id, node.came_from = _starter(session, first, node, parent, started, taken)
        elif _torn_off(first):
            node.link = "continuation"
        latest[first.thread] = node


def _before(line: Line, key: str) -> Line | None:
    """The nearest message before it that is not part of the same node; a line at which the context was cut has none."""
    at = line.parent
    while at is not None and (at.key is None or at.key == key):
        if at.value.get("subtype") == "compact_boundary":
            return None
        at = at.parent
    return at


def _torn_off(line: Line) -> bool:
    at: Line | None = line
    while at is not None:
        if at.torn_off:
            return True
        at = at.parent
    return False


def _compaction(first: Line, by_uuid: dict[str, Line]) -> tuple[bool, Line | None]:
    """Whether the context was shortened just before this message, and the last message of the longer one."""
    at = first.parent
    while at is not None and not at.is_message:
        if at.value.get("subtype") == "compact_boundary":
            named = by_uuid.get(at.value.get("logicalParentUuid") or "")
            return True, (named if named is None or named.is_message else _message_before(named)) or _message_before(at)
        at = at.parent
    if first.value.get("isCompactSummary"):
        return True, at
    return False, None


def _started(session: _Session) -> dict[str, str]:
    """Subagent -> the tool call that started it, where a line says so."""
    found: dict[str, str] = {}
    for line in sorted(session.lines, key=lambda line: line.order):
        result, progress = line.value.get("toolUseResult"), line.value.get("data")
        if isinstance(result, dict) and line.results:
            agent = result.get("agentId") or result.get("agent_id")
            if isinstance(agent, str):
                found.setdefault(agent, line.results[0])
        agent, call = progress.get("agentId") if isinstance(progress, dict) else None, line.value.get("parentToolUseID")
        if isinstance(agent, str) and isinstance(call, str):
            found.setdefault(agent, call)
    return found


def _starter(
    session: _Session, first: Line, node: Node, parent: Line | None, started: dict[str, str], taken: set[str]
) -> tuple[str | None, str | None]:
    """The tool call that started a subagent, and the answer that made it."""
    call = started.get(first.thread)
    if call is None:
        prompt = (text_of(first.value["message"].get("content")) or "").strip()
        call = next((found for found in _agent_calls(session, prompt) if found not in taken | set(started.values())), None)
    if call is not None:
        taken.add(call)
        return call, session.asked_by.get(call)
    return None, None if parent is None else parent.key


def _agent_calls(session: _Session, prompt: str) -> Iterable[str]:
    """Calls of the tools that start subagents with this prompt, the earliest first."""
    for node in sorted(session.nodes.values(), key=lambda node: node.order):
        for call in [call for turn in node.turns if turn["role"] == "assistant" for call in turn.get("tool_calls") or ()]:
            if prompt and call["function"]["name"] in AGENT_TOOLS:
                asked = orjson.loads(call["function"]["arguments"])
                if isinstance(asked, dict) and isinstance(asked.get("prompt"), str) and asked["prompt"].strip() == prompt:
                    yield call["id"]
