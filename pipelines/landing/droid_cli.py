"""Format `droid_cli`: Factory's Droid, as it stores a session and as it streams one (`droid exec --output-format stream-json`).

A stored session is a header `session_start` and entries that hang on each other (id, parentId), messages in Anthropic's
blocks. A stream names its session on every line; a text and the calls that follow it without a result between them are
one answer. Traps: `completion` repeats the last text, or is the only place where it stands; a session that a tool of
another one started says so in its header; a stream's results are any JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.content_blocks import tool_call, tool_turn, turns_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.entries import Entry, attempts_of
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, merged, text_of, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.session_lines import Places, in_order, in_place, split_placed
from pipelines.landing.shapes import checked

_STREAMED = {"system", "message", "tool_call", "tool_result", "completion", "error", "reasoning"}
_OPTIONAL = (str, type(None))


class DroidCli:
    """The format; see LogFormat."""

    name = "droid_cli"
    parser_version = 2
    what = "Factory Droid sessions and stream-json output, one event a line"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """A session's header or entries, or events of a stream in Droid's words."""
        return any(_is_header(row) or _is_entry(row) or _is_event(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line."""
        return split_placed(path, start, _Reading(path))

    def spell(self, value: Any) -> Spelled:
        """The turns of one entry or event."""
        row = value["row"]
        tools = row.get("tools") if row["type"] == "system" else None
        return Spelled(turns=_event_turns(row) if value["streamed"] else _entry_turns(row), tools=_tools(tools))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts of a session; a stream is one."""
        ordered = in_order(records)
        stored = [record for record in ordered if not record.value["streamed"]]
        if not stored:
            return Bundle(attempts=attempts_of(_streamed(ordered), tools=_stream_tools(ordered)))
        # of a session that was streamed and stored, what was stored stands: it holds every message as it was
        left: dict[str, tuple[str | None, str]] = {
            record.record_id: ("", "superseded") for record in ordered if record.value["streamed"]
        }
        ordered = stored
        latest = {record.value["row"].get("id") or record.record_id: record for record in ordered}
        kept = list(latest.values())
        caller = next((record.value["caller"] for record in ordered if "caller" in record.value), None)
        attempts = attempts_of(_stored(kept), link="subagent" if caller else None)
        attempts[0] = dataclasses.replace(attempts[0], parent_tool_call_id=caller[1] if caller else None)
        places = {record_id: attempt.ref for attempt in attempts for record_id in attempt.record_ids}
        for record in ordered:
            if record.record_id not in places:
                left[record.record_id] = (places[latest[record.value["row"]["id"]].record_id], "superseded")
        return Bundle(attempts=attempts, left=left)


class _Reading:
    """What is known of a file while its lines are read."""

    def __init__(self, path: Path) -> None:
        self.session = path.name.partition(".")[0]
        self.caller: dict[str, Any] = {}
        """Session and call that started this one; the header alone says so, and has no time."""
        self.places = Places()

    def __call__(self, value: Any) -> Facts:
        row = checked(value, type=str, timestamp=(str, int, float, type(None)), id=_OPTIONAL, parentId=_OPTIONAL)
        time = checked_moment(row.get("timestamp"))
        streamed = isinstance(row.get("session_id"), str)
        if streamed:
            _check_event(row)
            skip = None if row["type"] in _STREAMED else "meta"
            facts = Facts(vendor_id=None, time=time, skip_reason=skip)
            return in_place(facts, row["session_id"], self.places.place(time, row), row, streamed=True)
        if _is_header(row):
            checked(row, callingSessionId=_OPTIONAL, callingToolUseId=_OPTIONAL)
            self.session = row["id"]
            if row.get("callingSessionId"):
                self.caller = {"caller": [row["callingSessionId"], row.get("callingToolUseId")]}
        elif row["type"] == "message":
            message = checked(row.get("message"), role=str, content=(str, list, type(None)))
            if message["role"] not in ("user", "assistant", "system"):
                raise BadPieceError("wrong_shape", f"role {message['role'][:40]!r}")
        named = row["type"] in ("message", "compaction_state") or row.get("id")
        skip = "meta" if _is_header(row) or not named else None
        facts = Facts(vendor_id=row.get("id"), time=time, skip_reason=skip)
        return in_place(facts, self.session, self.places.place(time, row), row, streamed=False, **self.caller)


def _is_header(row: dict[str, Any]) -> bool:
    return row.get("type") == "session_start" and isinstance(row.get("id"), str)


def _is_entry(row: dict[str, Any]) -> bool:
    message = row.get("message")
    return (
        row.get("type") == "message" and "parentId" in row and isinstance(message, dict) and message.keys() == {"role", "content"}
    )


def _is_event(row: dict[str, Any]) -> bool:
    if not isinstance(row.get("session_id"), str):
        return False
    return (
        row.get("type") in ("tool_call", "tool_result") and ("toolCallId" in row or "toolName" in row or "toolId" in row)
    ) or (row.get("type") in ("message", "completion") and ("text" in row or "finalText" in row) and "timestamp" in row)


def _check_event(row: dict[str, Any]) -> None:
    if row["type"] == "message":
        checked(row, role=str, text=_OPTIONAL)
    elif row["type"] == "completion":
        checked(row, finalText=_OPTIONAL)
    for name in ("toolCallId", "toolName", "toolId", "messageId", "model"):
        if not isinstance(row.get(name), str | None):
            raise BadPieceError("wrong_shape", f"{name} is {type(row[name]).__name__}")


def _tools(tools: Any) -> list[Any] | None:
    """Only a schema: a stream lists names."""
    return tools if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools) else None


def _entry_turns(row: dict[str, Any]) -> list[dict[str, Any]]:
    if row["type"] == "compaction_state" and isinstance(row.get("summaryText"), str):
        return [uniform({"role": "user", "content": row["summaryText"]}, call=None)]
    return turns_of(row["message"]["role"], row["message"].get("content")) if row["type"] == "message" else []


def _event_turns(row: dict[str, Any]) -> list[dict[str, Any]]:
    kind = row["type"]
    if kind == "message" and row["role"] in ("user", "assistant", "system"):
        return turns_of(row["role"], row.get("text") or row.get("content"))
    if kind == "reasoning" and isinstance(row.get("text"), str):
        return turns_of("assistant", [{"type": "reasoning", "text": row["text"]}])
    if kind == "tool_call":
        call = tool_call(row.get("toolCallId") or row.get("id"), row.get("toolName") or row.get("toolId"), row.get("parameters"))
        return [uniform({"role": "assistant", "tool_calls": [call]}, call=None)]
    if kind == "tool_result":
        answer = row.get("value", row.get("error"))
        return [tool_turn(row.get("toolCallId") or row.get("id"), answer)]
    if kind == "completion" and row.get("finalText"):
        return turns_of("assistant", row["finalText"])
    return []


def _stored(ordered: Sequence[StoredRecord]) -> list[Entry]:
    entries: list[Entry] = []
    for record in ordered:
        row = record.value["row"]
        is_message = row["type"] == "message"
        entry = Entry(
            record_ids=[record.record_id],
            turns=record.spelled.turns,
            id=row.get("id") or record.record_id,
            parent=row.get("parentId"),
            answers=is_message and row["message"]["role"] == "assistant",
            time=checked_moment(row.get("timestamp")),
        )
        if row["type"] == "compaction_state" and entry.turns:
            anchor = row.get("anchorMessage")
            first = anchor.get("id") if isinstance(anchor, dict) else None
            names = [str(other.id) for other in entries]
            entry.kept = names[names.index(first) + 1 :] if first in names else []
        entries.append(entry)
    return entries


def _streamed(ordered: Sequence[StoredRecord]) -> list[Entry]:
    entries: list[Entry] = []
    model = next((record.value["row"].get("model") for record in ordered if record.value["row"].get("model")), None)
    for record in ordered:
        row, turns = record.value["row"], record.spelled.turns
        before = next((entry for entry in reversed(entries) if entry.turns), None)
        answers = bool(turns) and turns[0]["role"] == "assistant"
        if row["type"] == "completion" and before is not None and before.answers and turns:
            said = text_of(before.turns[0].get("content"))
            turns = [] if said and said.strip() == (text_of(turns[0]["content"]) or "").strip() else turns
            answers = bool(turns)
        time = checked_moment(row.get("timestamp"))
        if answers and before is not None and before.answers and row["type"] != "completion":
            before.turns = [merged([*before.turns, *turns])]
            before.record_ids.append(record.record_id)
            continue
        fault = "harness_error" if row["type"] == "error" else None
        entries.append(Entry(record_ids=[record.record_id], turns=turns, answers=answers, time=time, model=model, fault=fault))
    return entries


def _stream_tools(ordered: Sequence[StoredRecord]) -> list[Any] | None:
    return next((record.spelled.tools for record in ordered if record.spelled.tools), None)
