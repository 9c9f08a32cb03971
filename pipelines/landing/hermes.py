"""Format `hermes`: session files of the Hermes agent, one JSON object with the OpenAI messages of a session.

The file is written anew as the session grows: the version with the most messages stands, the others are superseded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_document
from pipelines.landing.entries import Entry, attempts_of
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.shapes import checked

_ROLES = {"system", "developer", "user", "assistant", "tool"}


class Hermes:
    """The format; see LogFormat."""

    name = "hermes"
    parser_version = 2
    what = "Hermes agent sessions, one JSON object each"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """An object with a session's id, start and messages in Hermes's words."""
        return {"session_id", "session_start", "messages"} <= head.object.keys()

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """The whole file is one record."""
        return split_document(path, start, _facts)

    def spell(self, value: Any) -> Spelled:
        """The system prompt and the messages."""
        prompt = value.get("system_prompt")
        own = value["messages"][0]["role"] in ("system", "developer") if value["messages"] else False
        system = [{"role": "system", "content": prompt}] if prompt and not own else []
        return Spelled(
            turns=[uniform(message, call=None) for message in (*system, *value["messages"])], tools=value.get("tools") or None
        )

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of a session, by its latest version."""
        *older, last = sorted(records, key=_order)
        value, turns = last.value, last.spelled.turns
        messages = [{}] * (len(turns) - len(value["messages"])) + value["messages"]
        entries = [
            Entry(
                record_ids=[last.record_id],
                turns=[turn],
                answers=turn["role"] == "assistant",
                finish_reason=message.get("finish_reason") if isinstance(message.get("finish_reason"), str) else None,
                model=value.get("model"),
                time=checked_moment(message.get("timestamp")),
            )
            for turn, message in zip(turns, messages, strict=True)
        ]
        entries = entries or [Entry(record_ids=[last.record_id])]
        told = {
            "model": value.get("model") or None,
            "tools": last.spelled.tools,
            "started_at": checked_moment(value.get("session_start")),
            "ended_at": checked_moment(value.get("last_updated")),
        }
        link = "continuation" if value.get("parent_session_id") else None
        return Bundle(
            attempts=attempts_of(entries, link=link, **told), left={record.record_id: ("", "superseded") for record in older}
        )


def _facts(value: Any) -> Facts:
    text = (str, type(None))
    checked(value, session_id=str, messages=list, model=text, system_prompt=text, tools=(list, type(None)))
    for message in value["messages"]:
        checked(message, role=str, content=(str, list, type(None)), tool_calls=(list, type(None)))
        if message["role"] not in _ROLES:
            raise BadPieceError("wrong_shape", f"role {message['role'][:40]!r}")
        for call in message.get("tool_calls") or ():
            checked(call, function=dict)
        checked_moment(message.get("timestamp"))
    started, ended = checked_moment(value.get("session_start")), checked_moment(value.get("last_updated"))
    return Facts(bundle_ref=value["session_id"], time=ended or started)


def _order(record: StoredRecord) -> tuple[Any, ...]:
    return len(record.value["messages"]), str(record.value.get("last_updated")), record.record_id
