"""Format `copilot_cli`: events.jsonl of GitHub Copilot CLI, rows {type, data, id, parentId, timestamp}.

Traps:

- only session.start names the session;
- a raw U+2028 may stand inside a string: lines end at \\n alone (jsonl.py);
- transformedContent is what the model saw of a user's message; content is what was typed;
- an answer may be written in chunks under one messageId;
- what a subagent does stands between the session's own events and carries parentToolCallId, the call that started it;
- session.task_complete is the policy's own word on how it went. It is an outcome, the weakest there is, and its source says so.

The system prompt is logged, tools are not. The snapshot is folder, commit and version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.conversation_tree import Node, bundle_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, merged, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.session_lines import header, in_order, logged_at, place_of, placed, split_placed, unnamed
from pipelines.landing.shapes import text

OUTCOME_SOURCE = "session.task_complete.success (the policy's own word)"
MESSAGES = ("system.message", "user.message", "assistant.message", "tool.execution_complete", "session.compaction_complete")
STOPS = ("session.error", "abort")
TOLD = (*MESSAGES, *STOPS, "session.start", "session.model_change", "session.task_complete")
SHOWN = ("assistant.turn_start", "assistant.turn_end", "tool.execution_start", "session.info", "system.notification")


class CopilotCli:
    """The format; see LogFormat."""

    name = "copilot_cli"
    parser_version = 2
    what = "GitHub Copilot CLI session events, one JSON object per line"
    gives = frozenset({"outcome", "model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """A row among the first is one of its events."""
        return any(
            row.get("type") in (*TOLD, *SHOWN) and isinstance(row.get("data"), dict) and "parentId" in row for row in head.rows
        )

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per event, each with the id of its session."""
        first = header(path, lambda row: row.get("type") == "session.start" and isinstance(row.get("data"), dict))
        session = text(first["data"].get("sessionId")) if first else None
        return split_placed(path, start, placed(_facts, session or unnamed(path)))

    def spell(self, value: Any) -> Spelled:
        """The turn of one event, if it is one."""
        kind, data = value["row"]["type"], value["row"]["data"]
        message: dict[str, Any] | None = None
        if kind == "system.message":
            message = {"role": "system", "content": data.get("content")}
        elif kind == "user.message":
            message = {"role": "user", "content": data.get("transformedContent") or data.get("content")}
        elif kind == "session.compaction_complete":
            message = {"role": "user", "content": data.get("summaryContent")}
        elif kind == "assistant.message":
            message = {
                "role": "assistant",
                "content": data.get("content") or None,
                "reasoning": data.get("reasoningText"),
                "tool_calls": [
                    {"id": call.get("toolCallId"), "function": {"name": call.get("name"), "arguments": call.get("arguments")}}
                    for call in data.get("toolRequests") or ()
                ],
            }
        elif kind == "tool.execution_complete":
            message = {"role": "tool", "tool_call_id": data["toolCallId"], "content": _result(data)}
        snapshot = None
        if kind == "session.start":
            around = data.get("context") or {}
            state = [around.get("cwd"), around.get("repository"), around.get("headCommit"), data.get("copilotVersion")]
            snapshot = orjson.dumps(state).decode() if any(state) else None
        return Spelled(turns=[uniform(message, call=None)] if message else [], snapshot=snapshot)

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The session's attempt, one more after each compaction, and those of its subagents."""
        rows = in_order(records)
        threads: dict[str, list[StoredRecord]] = {}
        for row in rows:
            threads.setdefault(row.value["row"]["data"].get("parentToolCallId") or "", []).append(row)
        nodes = [node for thread, of_thread in threads.items() for node in _nodes(thread, of_thread)]
        asked_by = {call["id"]: node.key for node in nodes for turn in node.turns for call in turn.get("tool_calls") or ()}
        for node in nodes:
            if node.link == "subagent":
                node.came_from = asked_by.get(node.parent_tool_call_id or "")
        return bundle_of(nodes, {})


def _nodes(thread: str, rows: Sequence[StoredRecord]) -> list[Node]:
    nodes: list[Node] = []
    model: str | None = None
    system: list[dict[str, Any]] = []
    open_message: str | None = None
    pieces: list[dict[str, Any]] = []
    for row in rows:
        kind, data = row.value["row"]["type"], row.value["row"]["data"]
        model = _model(kind, data) or model
        message_id = data.get("messageId") if kind == "assistant.message" else None
        if nodes and (kind not in (*MESSAGES, *STOPS) or (message_id and message_id == open_message)):
            node = nodes[-1]  # a note goes with the message before it, a chunk with the one that it goes on from
            node.snapshot = node.snapshot or row.spelled.snapshot
            if message_id:
                pieces = [*pieces, *row.spelled.turns]
                node.turns = [merged(pieces)]
        else:
            node = Node(key=row.record_id, parent=nodes[-1].key if nodes else None, order=(place_of(row), thread, len(nodes)))
            node.turns, node.snapshot, pieces = list(row.spelled.turns), row.spelled.snapshot, list(row.spelled.turns)
            if not nodes and thread:
                node.link, node.parent_tool_call_id = "subagent", thread
            nodes.append(node)
        open_message = message_id or (open_message if kind not in MESSAGES else None)
        _keep(node, row)
        if kind == "system.message":
            system = [*system, *row.spelled.turns]
        elif kind == "assistant.message":
            node.sampled, node.model = True, data.get("model") if isinstance(data.get("model"), str) else model
            if isinstance(tokens := data.get("outputTokens"), int):
                node.num_reply_tokens = max(tokens, node.num_reply_tokens or 0)
        elif kind == "session.compaction_complete":
            node.link, node.came_from, node.parent = "compaction", node.parent, None
            node.turns = [*system, *row.spelled.turns]
        elif kind in STOPS:
            node.fault = "aborted" if kind == "abort" else "model_error"
        elif kind == "session.task_complete" and isinstance(data.get("success"), bool):
            node.outcome, node.outcome_source = float(data["success"]), OUTCOME_SOURCE
    return nodes


def _keep(node: Node, row: StoredRecord) -> None:
    node.record_ids.append(row.record_id)
    if (time := logged_at(row)) is not None:
        node.started_at = min(node.started_at or time, time)
        node.ended_at = max(node.ended_at or time, time)


def _model(kind: str, data: dict[str, Any]) -> str | None:
    told = (
        data.get("newModel") if kind == "session.model_change" else data.get("selectedModel") if kind == "session.start" else None
    )
    return told if isinstance(told, str) else None


def _result(data: dict[str, Any]) -> Any:
    result = data.get("result")
    if result is None:
        result = data.get("error")
    if isinstance(result, dict):
        told = next((result[name] for name in ("content", "message") if isinstance(result.get(name), str)), None)
        return told if told is not None else orjson.dumps(result).decode()
    return result if isinstance(result, str) or result is None else orjson.dumps(result).decode()


def _facts(row: Any) -> Facts:
    if not isinstance(row, dict) or not isinstance(row.get("type"), str) or not isinstance(data := row.get("data"), dict):
        raise BadPieceError("wrong_shape", "no event with type and data")
    kind = row["type"]
    time = checked_moment(row.get("timestamp"))
    if kind not in TOLD:
        reason = "duplicate_view" if kind == "assistant.reasoning" else "interface" if kind in SHOWN else "meta"
        return Facts(time=time, skip_reason=reason)
    if kind == "session.compaction_complete" and not isinstance(data.get("summaryContent"), str):
        return Facts(time=time, skip_reason="meta")
    for name in ("content", "transformedContent", "reasoningText", "messageId", "parentToolCallId"):
        if kind in MESSAGES and not isinstance(data.get(name), str | None):
            raise BadPieceError("wrong_shape", f"{name} is no text")
    if kind == "tool.execution_complete" and not isinstance(data.get("toolCallId"), str):
        raise BadPieceError("wrong_shape", "a result without toolCallId")
    if kind == "session.start" and not isinstance(data.get("context") or {}, dict):
        raise BadPieceError("wrong_shape", "context is no object")
    if kind == "assistant.message":
        calls = data.get("toolRequests") or []
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise BadPieceError("wrong_shape", "toolRequests is no list of objects")
        if not all(isinstance(call.get("toolCallId"), str | None) for call in calls):
            raise BadPieceError("wrong_shape", "toolCallId is no string")
    return Facts(time=time)
