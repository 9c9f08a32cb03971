"""What each message of a Claude Code session goes on from: another message, a longer context, or the call that started it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import orjson

from pipelines.landing.claude_code_lines import SIDE, Conversation, Line, message_before
from pipelines.landing.conversation_tree import Node
from pipelines.landing.format import text_of

AGENT_TOOLS = ("Task", "Agent")


def connect(session: Conversation) -> None:
    """Parents of nodes; for those that begin a tree, what they come from."""
    started = _started(session)
    by_uuid: dict[str, Line] = {}
    for line in session.lines:
        by_uuid.setdefault(line.uuid, line)
    latest: dict[str, Node] = {}
    kept: list[tuple[Node, Line]] = []
    asked = _agent_calls(session)
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
            kept.append((node, first))
            node.came_from = before.key if before is not None else latest[first.thread].key if first.thread in latest else None
        elif first.thread:
            node.link = "subagent"
            node.parent_tool_call_id, node.came_from = _starter(session, first, parent, started, asked)
        elif _torn_off(first):
            node.link = "continuation"
        latest[first.thread] = node
    for node, first in kept:
        _keep_segment(session, node, first, by_uuid)


def _keep_segment(session: Conversation, node: Node, first: Line, by_uuid: dict[str, Line]) -> None:
    """A compaction may keep the last messages as they were: they follow the summary (or go before it, where they hang on the
    boundary itself) and are not logged again."""
    boundary = first.parent
    while boundary is not None and boundary.value.get("subtype") != "compact_boundary":
        boundary = boundary.parent
    told = boundary.value.get("compactMetadata") if boundary else None
    segment = told.get("preservedSegment") if isinstance(told, dict) else None
    if boundary is None or not isinstance(segment, dict):
        return
    head, tail = (by_uuid.get(str(segment.get(name))) for name in ("headUuid", "tailUuid"))
    at = session.nodes.get(tail.key or "") if tail else None
    turns: list[dict[str, Any]] = []
    seen: set[str] = set()
    while head is not None and at is not None and at.key not in seen:
        seen.add(at.key)
        turns = [*at.turns, *turns]
        if at.key == head.key:
            node.turns = [*turns, *node.turns] if segment.get("anchorUuid") == boundary.uuid else [*node.turns, *turns]
            return
        at = session.nodes.get(at.parent or "")


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
            return True, (named if named is None or named.is_message else message_before(named)) or message_before(at)
        at = at.parent
    if first.value.get("isCompactSummary"):
        return True, at
    return False, None


def _started(session: Conversation) -> dict[str, str]:
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
    session: Conversation, first: Line, parent: Line | None, started: dict[str, str], asked: dict[str, list[str]]
) -> tuple[str | None, str | None]:
    """The tool call that started a subagent, and the answer that made it. A call that is said to start one starts no other."""
    name = f"{SIDE} {first.uuid}" if first.thread == SIDE else first.thread
    call = started.get(name)
    if call is None:
        same = asked.get((text_of(first.value["message"].get("content")) or "").strip(), [])
        call = next((found for found in same if found not in started.values()), None)
        if call is not None:
            started[name] = call
    if call is not None:
        return call, session.asked_by.get(call)
    return None, None if parent is None else parent.key


def _agent_calls(session: Conversation) -> dict[str, list[str]]:
    """Prompt -> the calls of the tools that start subagents with it, the earliest first."""
    found: dict[str, list[str]] = defaultdict(list)
    for node in sorted(session.nodes.values(), key=lambda node: node.order):
        for call in [call for turn in node.turns if turn["role"] == "assistant" for call in turn.get("tool_calls") or ()]:
            if call["function"]["name"] in AGENT_TOOLS and (prompt := _prompt(call["function"]["arguments"])):
                found[prompt].append(call["id"])
    return found


def _prompt(arguments: str) -> str | None:
    try:
        asked = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    return asked["prompt"].strip() if isinstance(asked, dict) and isinstance(asked.get("prompt"), str) else None
