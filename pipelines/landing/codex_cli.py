"""Format `codex_cli`: the rollout files of Codex CLI, rows {timestamp, type, payload}.

What makes it hard to read:

- the conversation stands in `response_item` rows; `event_msg` rows show the same text on the screen and are skipped, save
  those that alone tell something: usage, an aborted turn, an error, turns that were taken back;
- only the first row, session_meta, names the session. A forked session's file goes on with the other session's
  session_meta and history, written in one go: what stands there from before the file began is context;
- reasoning is mostly encrypted; arguments are a JSON string, the input of custom tools is plain text;
- the prompt of <environment_context> and the developer's messages are context like any other;
- `compacted` replaces the history: what follows is another attempt, which goes on from the first;
- files from before the envelope have bare rows without times, whose order is that of the file.

The system prompt is logged, tools are not. The snapshot is folder, commit, branch and version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.codex_cli_session import CALLS, OUTPUTS, bundle, entry
from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord, uniform
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.response_items import reasoning_of
from pipelines.landing.session_lines import header, placed, split_placed, unnamed
from pipelines.landing.shapes import text

ENVELOPES = ("session_meta", "turn_context", "response_item", "compacted", "event_msg")
TOLD_BY_EVENTS = ("token_count", "turn_aborted", "error", "thread_rolled_back")
"""Events that no other row tells."""


class CodexCli:
    """The format; see LogFormat."""

    name = "codex_cli"
    parser_version = 2
    what = "Codex CLI rollout files, one JSON object per line"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """A row among the first has the envelope, or the first is the bare header of old files."""
        if any(row.get("type") in ENVELOPES and isinstance(row.get("payload"), dict) for row in head.rows):
            return True
        if head.rows and _is_bare_header(head.rows[0]):
            return True
        return (
            not head.values and head.text.startswith(b'{"timestamp":') and b'"type":"session_meta","payload":' in head.text[:200]
        )

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per row, each with the id of its session."""
        first = header(path, _is_header)
        meta = entry(first)[1] if first else {}
        session = text(meta.get("id")) or text(meta.get("session_id")) or unnamed(path)
        return split_placed(path, start, placed(_facts, session))

    def spell(self, value: Any) -> Spelled:
        """The turns of one row."""
        kind, payload = entry(value["row"])
        if kind == "session_meta":
            git = payload.get("git") or {}
            state = [payload.get("cwd"), git.get("commit_hash"), git.get("branch"), payload.get("cli_version")]
            told = [payload.get("base_instructions"), payload.get("instructions")]
            texts = [words.get("text") if isinstance(words, dict) else words for words in told]
            return Spelled(
                turns=[uniform({"role": "system", "content": words}, call=None) for words in dict.fromkeys(texts) if words],
                snapshot=orjson.dumps(state).decode() if any(state) else None,
            )
        if kind == "compacted":
            history = payload.get("replacement_history")
            if isinstance(history, list) and history:
                return Spelled(turns=[turn for item in history for turn in _item(item)])
            return Spelled(turns=[uniform({"role": "user", "content": payload.get("message") or ""}, call=None)])
        return Spelled(turns=_item(payload) if kind == "response_item" else [])

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The session's attempt, with one more after each compaction and for turns that were taken back."""
        return bundle(records)


def _is_header(row: dict[str, Any]) -> bool:
    return (row.get("type") == "session_meta" and isinstance(row.get("payload"), dict)) or _is_bare_header(row)


def _is_bare_header(row: dict[str, Any]) -> bool:
    return "type" not in row and {"id", "timestamp", "instructions"} <= row.keys()


def _facts(row: Any) -> Facts:
    if not isinstance(row, dict):
        raise BadPieceError("wrong_shape", "no object")
    if row.get("type") is None and not _is_bare_header(row):
        if "record_type" in row:
            return Facts(skip_reason="meta")
        raise BadPieceError("wrong_shape", "a row without type")
    kind, payload = entry(row)
    if not isinstance(payload, dict):
        raise BadPieceError("wrong_shape", "payload is no object")
    logged = row.get("timestamp")
    time = checked_moment(logged)
    if kind == "event_msg" and payload.get("type") not in TOLD_BY_EVENTS:
        return Facts(time=time, skip_reason="interface")
    if kind == "session_meta":
        if not isinstance(payload.get("git") or {}, dict):
            raise BadPieceError("wrong_shape", "git is no object")
        for name in ("base_instructions", "instructions"):
            told = payload.get(name)
            if not isinstance(told.get("text") if isinstance(told, dict) else told, str | None):
                raise BadPieceError("wrong_shape", f"{name} is no text")
    elif kind == "compacted":
        history = payload.get("replacement_history")
        if not isinstance(payload.get("message"), str | None) or not isinstance(history, list | None):
            raise BadPieceError("wrong_shape", "message is no text, or replacement_history no list")
        for item in history or ():
            _checked_item(item)
    elif kind == "response_item":
        if not _checked_item(payload):
            return Facts(time=time, skip_reason="meta")
    elif kind not in ENVELOPES:
        return Facts(time=time, skip_reason="meta")
    return Facts(time=time)


def _checked_item(item: Any) -> bool:
    """Whether it is part of the conversation; BadPieceError where it cannot be read."""
    if not isinstance(item, dict):
        raise BadPieceError("wrong_shape", "an item is no object")
    kind = item.get("type")
    if kind == "message":
        if not isinstance(item.get("role"), str) or not isinstance(item.get("content"), str | list | None):
            raise BadPieceError("wrong_shape", "a message without role, or with content that is neither text nor a list")
        return True
    if kind in OUTPUTS and not isinstance(item.get("call_id") or item.get("id"), str):
        raise BadPieceError("wrong_shape", "the output of no call")
    return kind == "reasoning" or kind in CALLS or kind in OUTPUTS


def _item(item: dict[str, Any]) -> list[dict[str, Any]]:
    kind = item.get("type")
    message: dict[str, Any] | None = None
    if kind == "message":
        message = {"role": item["role"], "content": _content(item.get("content"))}
    elif kind == "reasoning":
        message = {"role": "assistant", "content": None, "reasoning": reasoning_of(item)}
    elif kind in CALLS:
        message = {"role": "assistant", "content": None, "tool_calls": [_call(item)]}
    elif kind in OUTPUTS:
        output = next((item[name] for name in ("output", "result") if item.get(name) is not None), None)
        if isinstance(output, dict) and isinstance(output.get("content"), str | list):
            output = output["content"]
        if not isinstance(output, str | list | None):
            output = orjson.dumps(output).decode()
        message = {"role": "tool", "tool_call_id": item.get("call_id") or item["id"], "content": _content(output)}
    return [] if message is None else [uniform(message, call=None)]


def _call(item: dict[str, Any]) -> dict[str, Any]:
    kind = item["type"]
    name = item.get("name") or item.get("tool") or kind.removesuffix("_call")
    arguments = next((item[name] for name in ("arguments", "input", "action") if item.get(name) is not None), {})
    if kind == "custom_tool_call":  # its input is text in a language of its own
        arguments = {"input": arguments}
    return {"id": item.get("call_id") or item.get("id"), "function": {"name": name, "arguments": arguments}}


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {"type": "text", "text": part["text"]} if isinstance(part, dict) and isinstance(part.get("text"), str) else part
        for part in content
    ]
