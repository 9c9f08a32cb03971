"""Format `qwen_cli`: the chats of Qwen Code, one JSON object per line.

The envelope (uuid, parentUuid, sessionId) is like Claude Code's, the messages are Gemini's: text, thoughts, calls and
results all stand in message.parts. Traps:

- one message may be written in pieces under one uuid;
- two objects may stand on one line;
- `system` rows are notes. They stand in the tree: after a `rewind` the chat goes on from an earlier message, and a
  `chat_compression` holds the shortened history that it goes on from;
- what a hook added to the user's prompt is a part of it, as the model saw it.

Neither system prompt nor tools are logged; folder, branch and version are the snapshot, as for Claude Code.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing import gemini_parts
from pipelines.landing.conversation_tree import Node, bundle_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, merged, uniform
from pipelines.landing.head import Head
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import checked_moment, moment

MESSAGES = ("user", "assistant", "tool_result")
AGES_AGO = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


class QwenCli:
    """The format; see LogFormat."""

    name = "qwen_cli"
    parser_version = 2
    what = "Qwen Code chats, one JSON object per line"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """A row among the first has a session's envelope around message.parts."""
        return any(
            isinstance(row.get("message"), dict) and "parts" in row["message"] and {"uuid", "sessionId"} <= row.keys()
            for row in [*head.rows, head.object]
        )

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line."""
        return split_lines(path, start, line, _facts)

    def spell(self, value: Any) -> Spelled:
        """The turns of one row; of a compression, the history that the chat goes on from."""
        turns: list[dict[str, Any]] = []
        if value["type"] in MESSAGES:
            role = "assistant" if value["type"] == "assistant" else "user"
            turns = gemini_parts.messages(role, value["message"].get("parts"))
        elif (history := _shortened(value)) is not None:
            for content in history:
                role = "assistant" if content.get("role") == "model" else "user"
                turns += gemini_parts.messages(role, content.get("parts"))
        around = [value.get("cwd"), value.get("gitBranch"), value.get("version")]
        return Spelled(
            turns=[uniform(turn, call=None) for turn in turns],
            snapshot=orjson.dumps(around).decode() if any(around) else None,
        )

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The chat's paths."""
        written: dict[str, list[StoredRecord]] = defaultdict(list)
        for record in sorted(records, key=lambda record: (_time(record) or AGES_AGO, record.byte_start, record.record_id)):
            written[record.value["uuid"]].append(record)
        nodes = [_node(uuid, pieces) for uuid, pieces in written.items()]
        return bundle_of(nodes, {})


def _node(uuid: str, pieces: Sequence[StoredRecord]) -> Node:
    values = [record.value for record in pieces]
    times = [time for record in pieces if (time := _time(record)) is not None]
    node = Node(
        key=uuid,
        parent=values[0].get("parentUuid"),
        order=(min(times, default=AGES_AGO), pieces[0].byte_start, uuid),
        record_ids=[record.record_id for record in pieces],
        turns=_turns(pieces),
        snapshot=next((record.spelled.snapshot for record in pieces if record.spelled.snapshot), None),
        started_at=min(times, default=None),
        ended_at=max(times, default=None),
    )
    if values[0]["type"] == "assistant":
        node.sampled = any(turn["role"] == "assistant" for turn in node.turns)
        node.model = next((value["model"] for value in values if isinstance(value.get("model"), str)), None)
        used = next((value["usageMetadata"] for value in reversed(values) if isinstance(value.get("usageMetadata"), dict)), {})
        prompt, reply, thought = (used.get(f"{name}TokenCount") for name in ("prompt", "candidates", "thoughts"))
        node.num_prompt_tokens = prompt if isinstance(prompt, int) else None
        if isinstance(reply, int):
            node.num_reply_tokens = reply + (thought if isinstance(thought, int) else 0)
    elif any(_shortened(value) is not None for value in values):
        node.parent, node.link, node.came_from = None, "compaction", node.parent
    elif node.parent is not None:
        node.link = "continuation"  # of a chat whose beginning is not here; where it is, the link is not looked at
    return node


def _turns(pieces: Sequence[StoredRecord]) -> list[dict[str, Any]]:
    turns = []
    for record in pieces:
        for turn in record.spelled.turns:
            calls = [call["id"] for call in turn.get("tool_calls") or ()]
            mark = (turn["role"], turn["id"], turn["reasoning_id"], calls, turn.get("tool_call_id"))
            if mark not in [seen for seen, _ in turns]:
                turns.append((mark, turn))
    if pieces[0].value["type"] == "assistant" and all(turn["role"] == "assistant" for _, turn in turns) and turns:
        return [merged([turn for _, turn in turns])]
    return [turn for _, turn in turns]


def _shortened(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    payload = value.get("systemPayload")
    if value["type"] != "system" or value.get("subtype") != "chat_compression" or not isinstance(payload, dict):
        return None
    history = payload.get("compressedHistory")
    return history if isinstance(history, list) and history else None


def _facts(value: Any) -> Facts:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise BadPieceError("wrong_shape", "no object with a type")
    logged = value.get("timestamp")
    time = checked_moment(logged)
    kind, uuid, session = value["type"], value.get("uuid"), value.get("sessionId")
    if not isinstance(uuid, str) or not uuid or not isinstance(session, str) or not session:
        if kind in MESSAGES:
            raise BadPieceError("wrong_shape", "a message without uuid or sessionId")
        return Facts(time=time, skip_reason="meta")
    if not isinstance(value.get("parentUuid"), str | None):
        raise BadPieceError("wrong_shape", "parentUuid is no string")
    if kind in MESSAGES:
        if not isinstance(value.get("message"), dict):
            raise BadPieceError("wrong_shape", "message is no object")
        gemini_parts.checked(value["message"].get("parts"))
    for content in _shortened(value) or ():
        if not isinstance(content, dict):
            raise BadPieceError("wrong_shape", "a content of compressedHistory is no object")
        gemini_parts.checked(content.get("parts"))
    return Facts(bundle_ref=session, time=time)


def _time(record: StoredRecord) -> datetime.datetime | None:
    logged = record.value.get("timestamp")
    return moment(logged)
