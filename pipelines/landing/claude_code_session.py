"""The messages of one Claude Code session, made of its lines, and their attempts. claude_code.py says what the lines are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from pipelines.landing.claude_code_lines import (
    AGES_AGO,
    INTERRUPTED,
    SYNTHETIC,
    Conversation,
    Line,
    find_parents,
    is_api_error,
    lines_of,
)
from pipelines.landing.claude_code_links import connect
from pipelines.landing.conversation_tree import Node, bundle_of
from pipelines.landing.format import Bundle, StoredRecord, call_entry, merged, text_of


def bundle(records: Sequence[StoredRecord]) -> Bundle:
    """The attempts of one session and its subagents."""
    lines, superseded = lines_of(records)
    session = Conversation(lines=lines)
    find_parents(lines)
    _name_nodes(session)
    loose = _place_notes(session)
    for key, members in session.members.items():
        session.nodes[key] = _node(key, members)
    _own_once(session)
    connect(session)
    left: dict[str, tuple[str | None, str]] = {record_id: (line.key, "superseded") for record_id, line in superseded.items()}
    left |= {line.record.record_id: (None, "unanswered") for line in loose}
    return bundle_of(list(session.nodes.values()), left)


def _name_nodes(session: Conversation) -> None:
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


def _place_notes(session: Conversation) -> list[Line]:
    """Lines about the session go with the message before them, else with the first after them; those with neither are loose."""
    after: dict[int, Line] = {}
    for line in sorted((line for line in session.lines if line.is_message), key=lambda line: line.order):
        at = line.parent
        while at is not None and not at.is_message and id(at) not in after:
            after[id(at)] = line
            at = at.parent
    loose = []
    above: dict[int, Line | None] = {}
    for line in sorted(session.lines, key=lambda line: line.depth):
        before = line.parent if line.parent is None or line.parent.is_message else above[id(line.parent)]
        if line.is_message:
            continue
        above[id(line)] = before
        key = before.key if before is not None else after[id(line)].key if id(line) in after else None
        if key is None:
            loose.append(line)
        else:
            session.members[key].append(line)
    return loose


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


def _own_once(session: Conversation) -> None:
    """A subagent that starts with a copy of the conversation sampled none of it: an answer is the session's own, else that
    of the agent who has it first."""
    owners: dict[str, Node] = {}
    for node in sorted(session.nodes.values(), key=lambda node: (not node.key.startswith("/"), node.order)):
        call_id = node.call["call_id"]
        if node.sampled and call_id is not None and owners.setdefault(call_id, node) is not node:
            node.sampled, node.copied = False, True
