"""Format `cursor_cli`: transcripts of Cursor's agent (agent-transcripts/<chat>.jsonl), one message a line.

Lines carry neither ids nor times nor the model, and equal lines are equal messages; so each is stored with the name of its
chat, which only the file's name tells, and with its number. Calls have no ids either, so those of the results that follow
are theirs. A subagent has a file of its own in the folder `subagents` of its parent's chat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.content_blocks import turns_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.entries import Entry, attempts_of
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.session_lines import Places, in_order, in_place, split_placed
from pipelines.landing.shapes import checked

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ROLES = ("user", "assistant", "system", "tool")


class CursorCli:
    """The format; see LogFormat."""

    name = "cursor_cli"
    parser_version = 2
    what = "Cursor agent transcripts, one message a line"
    gives: frozenset[str] = frozenset()
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """Lines of nothing but a role and a message that says what was said."""
        return bool(head.rows) and all(_is_line(row) for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line."""
        return split_placed(path, start, _Reading(path))

    def spell(self, value: Any) -> Spelled:
        """The turns of one message."""
        row = value["row"]
        return Spelled(turns=turns_of(row["role"], row["message"].get("content")))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of a transcript."""
        ordered = in_order(records)
        results = iter(
            [turn.get("tool_call_id") for record in ordered for turn in record.spelled.turns if turn["role"] == "tool"]
        )
        entries = []
        for record in ordered:
            turns = [_with_ids(turn, results) for turn in record.spelled.turns]
            answers = record.value["row"]["role"] == "assistant"
            entries.append(Entry(record_ids=[record.record_id], turns=turns, answers=answers))
        link = "subagent" if any(record.value.get("subagent") for record in ordered) else None
        return Bundle(attempts=attempts_of(entries, link=link))


class _Reading:
    """What is known of a file while its lines are read."""

    def __init__(self, path: Path) -> None:
        stem = path.name.partition(".")[0]
        self.session = stem if _UUID.fullmatch(stem) else f"{path.parent.name}/{stem}"
        self.told = {"subagent": True} if path.parent.name == "subagents" else {}
        self.places = Places()

    def __call__(self, value: Any) -> Facts:
        if not isinstance(value, dict) or not _is_line(value):
            raise BadPieceError("wrong_shape", "neither role nor message")
        return in_place(Facts(), self.session, self.places.place(None, value), value, **self.told)


def _is_line(row: dict[str, Any]) -> bool:
    if row.get("role") not in _ROLES or not isinstance(row.get("message"), dict) or row.keys() - {"role", "message"}:
        return False
    try:
        message = checked(row["message"], content=(str, list))
    except BadPieceError:
        return False
    return not message.keys() - {"role", "content"}


def _with_ids(turn: dict[str, Any], results: Iterator[Any]) -> dict[str, Any]:
    """Its calls named after the results that answer them, in order; a call without a result keeps no id."""
    if not turn.get("tool_calls"):
        return turn
    return {**turn, "tool_calls": [call if call["id"] else {**call, "id": next(results, None)} for call in turn["tool_calls"]]}
