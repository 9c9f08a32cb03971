"""Format `gemini_cli`: the chats that Gemini CLI keeps, in both layouts.

Old: one JSON object {sessionId, …, messages[]}, written anew with every message. New (2026): JSONL with a header row, one
row per message, {"$set": …} rows that patch the header, and {"$rewindTo": id} rows. Both become the same records, one per
message with the id of its session. Traps:

- a message is written again under its id as it grows (its tools' results arrive): the last one counts;
- calls and their results stand together in the model's message, so one message is an answer and what the tools said to it;
- `info`, `warning` and `error` messages were shown and not sent. An error, or a cancelled request, at the end is a fault;
- neither system prompt nor tools are logged; the project's hash is the snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.ids import canonical_json
from pipelines.landing import gemini_parts
from pipelines.landing.conversation_tree import Node, bundle_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_items
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.pieces import FactsOf
from pipelines.landing.session_lines import header, in_order, logged_at, placed, split_placed, unnamed
from pipelines.landing.shapes import text

BY_MODEL = ("gemini", "model")
SHOWN = ("info", "warning", "error")


class GeminiCli:
    """The format; see LogFormat."""

    name = "gemini_cli"
    parser_version = 2
    what = "Gemini CLI chats, one JSON object or JSONL"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """The session's header, with its messages or as a row of its own, or rows of messages."""
        return _is_header(head.object) or any(_is_header(row) or _is_message(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per message."""
        whole = Head(path).object
        if "messages" in whole:
            facts = _named(whole, path)
            items = split_items(path, 0, "messages", lambda item, _: facts(item))
            return (piece for piece in items if piece.byte_start >= start)
        return split_placed(path, start, _named(header(path, _is_header), path))

    def spell(self, value: Any) -> Spelled:
        """What one message says: a prompt, or an answer and the results of its tools."""
        row, turns = value["row"], []
        if row.get("type") == "user":
            turns = gemini_parts.messages("user", _content(row))
        elif row.get("type") in BY_MODEL:
            turns = _answer(row)
        return Spelled(turns=[uniform(turn, call=None) for turn in turns], snapshot=value["project"])

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The chat's attempt, and one more where it was gone back in."""
        rows = in_order(records)
        versions: dict[str, list[StoredRecord]] = defaultdict(list)
        for row in rows:
            if (row_id := row.value["row"].get("id")) is not None:
                versions[row_id].append(row)
        left: dict[str, tuple[str | None, str]] = {}
        nodes: dict[str, Node] = {}
        tail: str | None = None
        notes: list[str] = []
        for row in rows:
            value = row.value["row"]
            if "$rewindTo" in value:
                if (target := nodes.get(value["$rewindTo"])) is not None:
                    tail = target.parent
                notes.append(row.record_id)
                continue
            if value["id"] in nodes:
                continue
            last = max(versions[value["id"]], key=lambda row: (row.value["tie"], len(canonical_json(row.value)), row.record_id))
            left |= {old.record_id: (value["id"], "superseded") for old in versions[value["id"]] if old is not last}
            node = _node(last, tail, len(nodes))
            if not nodes and row.value["kind"] == "subagent":
                node.link = "subagent"
            node.record_ids, notes = [*notes, *node.record_ids], []
            nodes[node.key] = node
            tail = node.key
        if notes and nodes:
            list(nodes.values())[-1].record_ids += notes
        elif notes:
            left |= {record_id: (None, "unanswered") for record_id in notes}
        return bundle_of(list(nodes.values()), left)


def _node(row: StoredRecord, parent: str | None, number: int) -> Node:
    value, turns = row.value["row"], row.spelled.turns
    time = logged_at(row)
    node = Node(
        key=value["id"],
        parent=parent,
        order=(number,),
        record_ids=[row.record_id],
        turns=turns,
        snapshot=row.spelled.snapshot,
        started_at=time,
        ended_at=time,
    )
    if value["type"] in BY_MODEL:
        node.sampled = any(turn["role"] == "assistant" for turn in turns)
        node.model = value.get("model") if isinstance(value.get("model"), str) else None
        used = value.get("tokens")
        if isinstance(used, dict) and isinstance(used.get("input"), int) and isinstance(used.get("output"), int):
            thought = used.get("thoughts")
            node.num_prompt_tokens = used["input"]
            node.num_reply_tokens = used["output"] + (thought if isinstance(thought, int) else 0)
    elif value["type"] == "error":
        node.fault = "model_error"
    elif value["type"] == "info" and "cancel" in str(value.get("content")).lower():
        node.fault = "aborted"
    return node


def _answer(row: dict[str, Any]) -> list[dict[str, Any]]:
    turns = gemini_parts.messages("assistant", _content(row))
    calls = row.get("toolCalls") or []
    thoughts = [
        "\n".join(thought[name] for name in ("subject", "description") if isinstance(thought.get(name), str))
        for thought in row.get("thoughts") or ()
    ]
    if not turns and (calls or any(thoughts)):
        turns = [{"role": "assistant", "content": None}]
    if turns and any(thoughts):
        turns[0]["reasoning"] = "\n\n".join(thoughts)
    for call in calls:
        function = {"name": call.get("name"), "arguments": call.get("args")}
        turns[0].setdefault("tool_calls", []).append({"id": call.get("id") or call.get("name"), "function": function})
    for call in calls:
        results = [turn for turn in gemini_parts.messages("user", call.get("result")) if turn["role"] == "tool"]
        if results:  # the call's own id: the response may repeat the tool's name only
            turns.append({**results[0], "tool_call_id": call.get("id") or call.get("name")})
        elif isinstance(call.get("result"), str):
            turns.append({"role": "tool", "tool_call_id": call.get("id") or call.get("name"), "content": call["result"]})
    return turns


def _content(row: dict[str, Any]) -> Any:
    return row["parts"] if row.get("content") is None and "parts" in row else row.get("content")


def _facts(row: Any) -> Facts:
    if not isinstance(row, dict):
        raise BadPieceError("wrong_shape", "no object")
    logged = row.get("timestamp")
    time = checked_moment(logged)
    if "$set" in row or _is_header(row):
        return Facts(time=time, skip_reason="meta")
    if "$rewindTo" in row:
        if not isinstance(row["$rewindTo"], str):
            raise BadPieceError("wrong_shape", "$rewindTo names no message")
        return Facts(time=time)
    if not isinstance(row.get("type"), str) or not isinstance(row.get("id"), str):
        raise BadPieceError("wrong_shape", "a message without id or type")
    if row["type"] not in ("user", *BY_MODEL, *SHOWN):
        return Facts(time=time, skip_reason="meta")
    if row["type"] in SHOWN:
        return Facts(time=time)
    gemini_parts.checked(_content(row))
    for name in ("toolCalls", "thoughts"):
        found = row.get(name) or []
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise BadPieceError("wrong_shape", f"{name} is no list of objects")
    for call in row.get("toolCalls") or ():
        gemini_parts.checked(call.get("result"))
        if not isinstance(call.get("id") or call.get("name"), str):
            raise BadPieceError("wrong_shape", "a tool call with neither id nor name")
    return Facts(time=time)


def _is_header(row: dict[str, Any]) -> bool:
    return isinstance(row.get("sessionId"), str) and "projectHash" in row and "type" not in row


def _is_message(row: dict[str, Any]) -> bool:
    return row.get("type") in BY_MODEL and isinstance(row.get("id"), str) and "timestamp" in row and "message" not in row


def _named(found: dict[str, Any], path: Path) -> FactsOf:
    """Facts of messages, which only their file's header tells the chat of."""
    session = text(found.get("sessionId")) or unnamed(path)
    return placed(_facts, session, name="id", project=text(found.get("projectHash")), kind=text(found.get("kind")))
