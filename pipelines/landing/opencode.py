"""Format `opencode`: OpenCode's storage, a tree of small JSON files (session, message, part), and its export of a session.

A session is what its files say together: session/<project>/<session>.json, message/<session>/<message>.json,
part/<message>/<part>.json (in older versions all below session/). Each file is one record; those of a session share its id.
Traps: a part does not say whose it is (its message does), so it is spelled for both sides; old parts name their session
only by the folder they stand in, or by that of their message; a part is written again as it grows; `summary: true` on an
answer is a compaction, while an object under that name is a title; a message may hold several steps, each an answer of
its own; text marked `synthetic` was put in by the program. A session with a parentID is a subagent of a session that is
another bundle, since its own files do not name the root.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.content_blocks import tool_call, tool_turn, turns_of
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.document import split_document
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.opencode_session import Conversation, Message, Part
from pipelines.landing.shapes import checked

_PARTS = {"text", "tool", "file", "reasoning", "step-start", "step-finish", "snapshot", "patch", "agent", "subtask"}
_PARTS |= {"retry", "compaction"}
_TEXT = (str, type(None))
_OBJECT = (dict, type(None))
MAX_LOOKED_AT = 5_000
"""At how many message files the one is looked for that a part belongs to."""


class OpenCode:
    """The format; see LogFormat."""

    name = "opencode"
    parser_version = 2
    what = "OpenCode storage (session, message and part files) and exported sessions"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """One of the tree's three kinds of file, or an export."""
        return len(head.rows) <= 1 and _kind(head.object, head.path) is not None

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """The whole file is one record."""
        return split_document(path, start, lambda value: _facts(value, path))

    def spell(self, value: Any) -> Spelled:
        """The turns that a part may be, or those of all parts of an export."""
        row = value["row"]
        if value["kind"] == "part":
            return Spelled(turns=_part_turns(row))
        if value["kind"] == "message":
            return Spelled(turns=_message_turns(row))
        if value["kind"] == "export":
            return Spelled(turns=[turn for held in row["messages"] for turn in _held_turns(held)])
        return Spelled()

    def placed(self, value: Any) -> Facts:
        """Where a stored value belongs, which is not as it was logged (placed_anew.py)."""
        # the times of a part without any are its message's, which is another file: such a part keeps the day that it has
        return Facts(bundle_ref=value["session"], time=_ended(_own_times(value["kind"], value["row"])))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts of a session; parts whose message is missing are left."""
        session = Conversation()
        for record in sorted(records, key=lambda record: record.record_id):
            value, row, turns = record.value, record.value["row"], list(record.spelled.turns)
            if value["kind"] == "part":
                session.add_part(Part(row=row, record_id=record.record_id, turns=turns), value["message"])
            elif value["kind"] == "message":
                session.add_message(Message(row=row, record_id=record.record_id, turns=turns))
            elif value["kind"] == "session":
                session.add_header(row, record.record_id)
            else:
                session.add_header(row["info"], record.record_id)
                for held in row["messages"]:
                    num_own = len(_message_turns(held["info"]))
                    session.add_message(Message(row=held["info"], record_id=record.record_id, turns=turns[:num_own]))
                    turns = turns[num_own:]
                    for part in held["parts"]:
                        number = len(_part_turns(part))
                        session.add_part(Part(row=part, record_id=record.record_id, turns=turns[:number]), held["info"]["id"])
                        turns = turns[number:]
        return session.bundle({record.record_id for record in records})


def _kind(row: dict[str, Any], path: Path) -> str | None:
    times = isinstance(row.get("time"), dict)
    if isinstance(row.get("info"), dict) and isinstance(row.get("messages"), list) and {"id", "time"} <= row["info"].keys():
        return "export"
    if not isinstance(row.get("id"), str):
        return None
    if row.get("role") in ("user", "assistant") and times and ("sessionID" in row or "message" in path.parts):
        return "message"
    if str(row.get("type")) in _PARTS and ("messageID" in row or "part" in path.parts):
        return "part"
    return "session" if times and {"title", "version"} <= row.keys() and not {"role", "type"} & row.keys() else None


def _facts(value: Any, path: Path) -> Facts:
    row = checked(value)
    kind = _kind(row, path)
    if kind is None:
        raise BadPieceError("wrong_shape", "neither session, message, part nor export")
    if kind == "export":
        checked(row["info"], id=str, parentID=_TEXT)
        for held in row["messages"]:
            checked(held, info=dict, parts=list)
            _check_message(held["info"])
            for part in held["parts"]:
                _check_part(checked(part, id=str, type=str))
        told: dict[str, Any] = {"session": row["info"]["id"]}
        times = _own_times(kind, row)
    elif kind == "part":
        _check_part(row)
        session, message = _whose(row, path)
        told = {"session": session, "message": message}
        times = _own_times(kind, row)
        if not times:  # else the session would count as of the day when it was landed
            times = _message_of(path, message).get("time")
            times = times if isinstance(times, dict) and isinstance(times.get("created"), int) else {}
    else:
        if kind == "message":
            _check_message(row)
        checked(row, parentID=_TEXT)
        told = {"session": (row.get("sessionID") or path.parent.name) if kind == "message" else row["id"]}
        times = _own_times(kind, row)
    return Facts(bundle_ref=told["session"], time=_ended(times), value={"kind": kind, **told, "row": row})


def _own_times(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    if kind == "part":
        state = row.get("state") if row["type"] == "tool" else None
        return _times(state if isinstance(state, dict) else row)
    return _times(row["info"] if kind == "export" else row)


def _ended(times: dict[str, Any]) -> datetime.datetime | None:
    return checked_moment(
        times.get("completed") or times.get("end") or times.get("updated") or times.get("created") or times.get("start")
    )


def _times(row: dict[str, Any]) -> dict[str, Any]:
    times = row.get("time") or {}
    for time in checked(times).values():
        checked_moment(time)
    return times


def _check_message(row: dict[str, Any]) -> None:
    checked(row, id=str, role=str, sessionID=_TEXT, tokens=_OBJECT, error=_OBJECT, modelID=_TEXT, system=_TEXT, finish=_TEXT)
    if row["role"] not in ("user", "assistant"):
        raise BadPieceError("wrong_shape", f"role {row['role'][:40]!r}")
    checked(row.get("tokens") or {}, cache=_OBJECT)
    model = row.get("model") or {}
    if isinstance(model, dict):
        checked(model, modelID=_TEXT)
    _times(row)


def _check_part(row: dict[str, Any]) -> None:
    checked(row, sessionID=_TEXT, messageID=_TEXT)
    if row["type"] in ("text", "reasoning"):
        checked(row, text=_TEXT)
    elif row["type"] == "tool":
        state = checked(row, state=_OBJECT, callID=_TEXT, tool=_TEXT).get("state") or {}
        _times(checked(state, status=_TEXT))
    elif row["type"] == "step-finish":
        checked(checked(row, tokens=_OBJECT, reason=_TEXT).get("tokens") or {}, cache=_OBJECT)
    elif row["type"] == "compaction":
        checked(row, tail_start_id=_TEXT)
    _times(row)


def _whose(row: dict[str, Any], path: Path) -> tuple[str, str]:
    """Conversation and message of a part, by itself or by where it stands."""
    above = [parent.name for parent in path.parents]
    depth = above.index("part") if "part" in above else -1
    message = row.get("messageID") or (above[0] if depth > 0 else None)
    session = row.get("sessionID") or (above[1] if depth == 2 else None)
    if message is not None and session is None:
        session = _message_of(path, message).get("sessionID")
    if message is None or not isinstance(session, str):
        raise BadPieceError("wrong_shape", "a part that names no session, and no message beside it does")
    return session, message


def _message_of(path: Path, message: str) -> dict[str, Any]:
    """The message that a part belongs to, by the tree that its file stands in; empty where it is not there."""
    root = next((parent.parent / "message" for parent in path.parents if parent.name == "part"), None)
    if root is None or not root.is_dir():
        return {}
    named = list(root.glob(f"*/{message}.json")) if re.fullmatch(r"[\w-]+", message) else []
    for number, file in enumerate(named or sorted(root.glob("*/*.json"))):
        if number >= MAX_LOOKED_AT:
            break
        try:
            row = orjson.loads(file.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            continue
        if isinstance(row, dict) and row.get("id") == message:
            return {"sessionID": file.parent.name, **row}
    return {}


def _message_turns(row: dict[str, Any]) -> list[dict[str, Any]]:
    return turns_of("system", row["system"]) if row["role"] == "user" and row.get("system") else []


def _part_turns(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Text as the user's and as the model's; a call and its result."""
    kind = row["type"]
    if kind == "text" and row.get("text"):
        return [turns_of(role, row["text"])[0] for role in ("user", "assistant")]
    if kind == "reasoning" and row.get("text"):
        return turns_of("assistant", [{"type": "reasoning", "text": row["text"]}])
    if kind == "file":
        return [uniform({"role": "user", "content": [{key: row[key] for key in row if key not in ("id", "time")}]}, call=None)]
    if kind == "tool":
        state, call_id = row.get("state") or {}, row.get("callID") or row["id"]
        call = tool_call(call_id, row.get("tool"), state.get("input"))
        turns = [uniform({"role": "assistant", "tool_calls": [call]}, call=None)]
        answer = state.get("error") if state.get("status") == "error" else state.get("output")
        return [*turns, tool_turn(call_id, answer, name=row.get("tool"))] if answer is not None else turns
    return []


def _held_turns(held: dict[str, Any]) -> list[dict[str, Any]]:
    return [*_message_turns(held["info"]), *(turn for part in held["parts"] for turn in _part_turns(part))]
