"""Format `cline`: conversations of Cline, whole files that are written anew as they grow (the longest version stands).

Three kinds: `<session>.messages.json` of the SDK ({sessionId, system_prompt, messages}), the session's own file beside it
(how it ended; no attempt by itself), and the extension's `api_conversation_history.json`, a bare array of Anthropic messages
that names no task but in its folder. Traps: a session that was forked begins with copies of another one's messages, which
are older than the session itself; the model may change between messages; a request for more time or another mode is
text of the user's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.content_blocks import turns_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_document
from pipelines.landing.entries import Entry, attempts_of
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.shapes import checked, cost, count, total

_HISTORY = "api_conversation_history.json"
_BEGUN = re.compile(r"(\d{13})(_\w+)?")
"""Ids of sessions and tasks are the millisecond in which they began."""
_FAULTS = {"failed": "harness_error", "error": "harness_error", "cancelled": "aborted", "aborted": "aborted"}


class Cline:
    """The format; see LogFormat."""

    name = "cline"
    parser_version = 2
    what = "Cline sessions (messages.json, api_conversation_history.json)"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """A session's messages or its own file, or an array of messages with Cline's times or under its name."""
        keys = head.object.keys()
        if {"sessionId", "messages"} <= keys and ("system_prompt" in keys or {"version", "agent"} <= keys):
            return True
        if {"session_id", "messages_path", "workspace_root"} <= keys:
            return True
        item = head.item
        if item.get("role") not in ("user", "assistant") or not isinstance(item.get("content"), list | str):
            return False
        return isinstance(item.get("ts"), int) or head.path.name == _HISTORY

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """The whole file is one record."""
        return split_document(path, start, lambda value: _facts(value, path.parent.name))

    def spell(self, value: Any) -> Spelled:
        """The system prompt and the messages' turns."""
        if "messages" not in value:
            return Spelled()
        prompt = value.get("system_prompt")
        system = [uniform({"role": "system", "content": prompt}, call=None)] if prompt else []
        return Spelled(
            turns=[
                *system,
                *(turn for message in value["messages"] for turn in turns_of(message["role"], message.get("content"))),
            ]
        )

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of a session, by its longest version."""
        sessions = sorted((record for record in records if "messages" not in record.value), key=_order)
        versions = sorted((record for record in records if "messages" in record.value), key=_order)
        if not versions:
            return Bundle(attempts=[], left={record.record_id: (None, "unmatched") for record in sessions})
        last = versions[-1]
        entries = _entries(last)
        entries[0].record_ids += [record.record_id for record in sessions[-1:]]
        attempts = attempts_of(entries)
        if sessions:  # an attempt that broke off says nothing of that in its messages
            fault = _FAULTS.get(sessions[-1].value.get("status") or "")
            attempts = [dataclasses.replace(attempt, fault=fault) for attempt in attempts]
        older = [*versions[:-1], *sessions[:-1]]
        return Bundle(attempts=attempts, left={record.record_id: ("", "superseded") for record in older})


def _facts(value: Any, folder: str) -> Facts:
    if isinstance(value, list):
        _check(value)
        first = value[0].get("ts") if value else None
        named = {"task": folder, "messages": value}
        ended = checked_moment(value[-1].get("ts")) if value else None
        return Facts(bundle_ref=f"{folder}/{first}" if value else None, time=ended, value=named)
    text = (str, type(None))
    if isinstance(value, dict) and "messages" not in value:
        checked(value, session_id=str, status=text)
        return Facts(bundle_ref=value["session_id"], time=checked_moment(value.get("ended_at") or value.get("started_at")))
    checked(value, sessionId=str, messages=list, system_prompt=text)
    _check(value["messages"])
    ended = value["messages"][-1].get("ts") if value["messages"] else None
    return Facts(bundle_ref=value["sessionId"], time=checked_moment(ended or value.get("updated_at")))


def _check(messages: list[Any]) -> None:
    optional = (dict, type(None))
    for message in messages:
        checked(message, role=str, content=(str, list, type(None)), metrics=optional, modelInfo=optional)
        if message["role"] not in ("user", "assistant"):
            raise BadPieceError("wrong_shape", f"role {message['role'][:40]!r}")
        checked(message.get("modelInfo") or {}, id=(str, type(None)), modelId=(str, type(None)))
        checked_moment(message.get("ts"))


def _entries(record: StoredRecord) -> list[Entry]:
    value, turns = record.value, list(record.spelled.turns)
    began = _BEGUN.fullmatch(value.get("sessionId") or "")
    begun = None if began is None else checked_moment(int(began.group(1)))
    entries = [Entry(record_ids=[record.record_id], turns=[turns.pop(0)])] if value.get("system_prompt") else []
    for number, message in enumerate(value["messages"]):
        num_turns = len(turns_of(message["role"], message.get("content")))
        own, turns = turns[:num_turns], turns[num_turns:]
        metrics, model = message.get("metrics") or {}, message.get("modelInfo") or {}
        time = checked_moment(message.get("ts"))
        entries.append(
            Entry(
                record_ids=[record.record_id],
                turns=own,
                id=str(number),
                answers=message["role"] == "assistant",
                copied=begun is not None and time is not None and time < begun,
                time=time,
                model=model.get("id") or model.get("modelId"),
                num_prompt_tokens=_prompt_tokens(metrics),
                num_reply_tokens=count(metrics.get("outputTokens")),
                cost_usd=cost(metrics.get("cost")),
            )
        )
    if entries and entries[0].turns and value.get("system_prompt"):
        entries[0].copied = len(entries) > 1 and entries[1].copied
    return entries or [Entry(record_ids=[record.record_id])]


def _prompt_tokens(metrics: dict[str, Any]) -> int | None:
    """Some versions count cached tokens into the input and some beside it: what is less than its part is beside it."""
    cached = total([count(metrics.get(name, 0)) for name in ("cacheReadTokens", "cacheWriteTokens")])
    read = count(metrics.get("inputTokens"))
    if read is None or cached is None:
        return read
    return read if read >= cached else read + cached


def _order(record: StoredRecord) -> tuple[Any, ...]:
    value = record.value
    return len(value.get("messages") or ()), str(value.get("updated_at") or value.get("ended_at")), record.record_id
