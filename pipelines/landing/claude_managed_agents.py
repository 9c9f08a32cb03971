"""Format `claude_managed_agents`: event streams of Anthropic's managed agents, a line per event: [name of the SDK's call, what it
sent or got].

One answer of the model stands between `span.model_request_start` and `span.model_request_end` as messages, thinking (without
its text) and tool uses; results come as events of their own, and so do refusals of a tool by the user. What was sent comes
back in the stream and is skipped there. Only the first lines name the session, so it is read from the file's beginning and
stored with every event; system prompt, tools and model stand in the session's creation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Attempt, Bundle, Piece, Spelled, StoredRecord, call_entry, merged, uniform
from pipelines.landing.head import Head
from pipelines.landing.jsonl import split_lines
from pipelines.landing.message_parts import call_of, result_of
from pipelines.landing.moments import checked_moment
from pipelines.landing.opening import open_log
from pipelines.landing.provider_messages import messages_of
from pipelines.landing.provider_tools import tools_of
from pipelines.landing.shapes import counted, first, text, total

_PREFIX = "client.beta.sessions."
_SAID = ("agent.message", "agent.thinking", "agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use")
_RESULTS = ("agent.tool_result", "agent.mcp_tool_result", "user.custom_tool_result")
_SPANS = ("span.model_request_start", "span.model_request_end")
_NUM_FIRST_LINES = 50


class ClaudeManagedAgents:
    """The format; see LogFormat."""

    name = "claude_managed_agents"
    parser_version = 2
    what = "Event streams of Anthropic's managed agents, as recorded around the SDK's calls"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call", "tool_call"})

    def detect(self, head: Head) -> bool:
        """Lines of [client.beta.sessions.…, payload]."""
        return bool(head.values) and _is_event(head.values[0])

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per event."""
        session = _named_in(path)
        return split_lines(path, start, line, partial(_facts, session=session))

    def spell(self, value: Any) -> Spelled:
        """The message, call or result that an event is; prompt and tools of the session's creation."""
        name, event = value["event"]
        if name.endswith(".create"):
            agent = event.get("agent")
            agent = agent if isinstance(agent, dict) else {}
            return Spelled(
                turns=[uniform(message, call=None) for message in messages_of(agent.get("system"), "system")],
                tools=tools_of(agent),
            )
        kind = event.get("type")
        if kind == "user.message":
            return Spelled(turns=[uniform(message, call=None) for message in messages_of([{**event, "role": "user"}])])
        if kind == "agent.message":
            content = event.get("content") or []
            return Spelled(
                turns=[uniform(message, call=0) for message in messages_of([{"role": "assistant", "content": content}])]
            )
        if kind in _SAID and kind != "agent.thinking":
            return Spelled(turns=[uniform({"role": "assistant", "content": None, "tool_calls": [call_of(event)]}, call=0)])
        if kind in _RESULTS:
            used = first(event, "tool_use_id", "mcp_tool_use_id", "custom_tool_use_id")
            return Spelled(turns=[uniform({**result_of(event), "tool_call_id": used}, call=None)])
        return Spelled()

    def placed(self, value: Any) -> Facts:
        """Where a stored value belongs, which is not as it was logged (placed_anew.py)."""
        return _facts(value["event"], value["session"]) if isinstance(value, dict) else _facts(value, None)

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The session as one attempt."""
        standing: dict[tuple[bool, str], StoredRecord] = {}
        for record in sorted(records, key=lambda record: record.record_id):
            name, event = record.value["event"]
            standing[name.endswith(".create"), str(event.get("id"))] = record
        ordered = sorted(standing.values(), key=_order)
        kept = {record.record_id for record in ordered}
        turns: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        pieces: list[dict[str, Any]] = []
        usage: list[tuple[int | None, int | None]] = []
        fault = None
        for record in ordered:
            name, event = record.value["event"]
            kind = "create" if name.endswith(".create") else event.get("type")
            if kind in _SAID:
                pieces += record.spelled.turns
                continue
            if pieces:  # the answer is whole; a stream that was cut has no end event
                turns.append({**merged(pieces), "call": len(calls)})
                calls.append(call_entry())
                pieces = []
            if kind == "span.model_request_end":
                usage.append(_usage(event))
            fault = "model_error" if kind == "session.error" or (event.get("is_error") is True and kind in _SPANS) else None
            turns += record.spelled.turns
        if pieces:
            turns.append({**merged(pieces), "call": len(calls)})
            calls.append(call_entry())
        times = [time for record in ordered if (time := checked_moment(record.value["event"][1].get("processed_at"))) is not None]
        created = next((record for record in ordered if record.value["event"][0].endswith(".create")), None)
        attempt = Attempt(
            record_ids=[record.record_id for record in ordered],
            ref="session",
            turns=turns,
            calls=calls,
            model=None if created is None else _model(created.value["event"][1].get("agent")),
            tools=None if created is None else created.spelled.tools,
            fault=fault,
            started_at=min(times, default=None),
            ended_at=max(times, default=None),
            num_prompt_tokens=total([asked for asked, _ in usage]),
            num_reply_tokens=total([replied for _, replied in usage]),
        )
        left = {record.record_id: (attempt.ref, "superseded") for record in records if record.record_id not in kept}
        return Bundle(attempts=[attempt], left=dict(left))


def _facts(value: Any, session: str | None) -> Facts:
    if not _is_event(value):
        raise BadPieceError("wrong_shape", "neither a call of client.beta.sessions nor an event of its stream")
    name, event = value
    if not isinstance(event, dict):  # [session id, what was sent]
        return Facts(skip_reason="duplicate_view")
    time = checked_moment(event.get("processed_at"))
    kind = event.get("type")
    if not name.endswith(".create"):
        if not isinstance(kind, str):
            raise BadPieceError("wrong_shape", "an event without type")
        if kind not in (*_SAID, *_RESULTS, *_SPANS, "user.message", "session.error"):
            return Facts(vendor_id=text(event.get("id")), time=time, skip_reason="meta")
    held = {"session": session, "event": value}
    try:
        ClaudeManagedAgents().spell(held)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise BadPieceError("wrong_shape", f"{kind}: {problem}"[:200]) from None
    return Facts(vendor_id=text(event.get("id")), bundle_ref=session, time=time, value=held)


def _is_event(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and value[0].startswith(_PREFIX)


def _named_in(path: Path) -> str | None:
    """The session's id, else the id of the first event: either is the same however far the file has grown."""
    earliest = None
    with open_log(path) as stream:
        for _, line in zip(range(_NUM_FIRST_LINES), iter(stream.readline, b""), strict=False):
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if not _is_event(value):
                continue
            held = value[1][0] if isinstance(value[1], list) and value[1] else value[1]
            named = held.get("id") if isinstance(held, dict) and value[0] == f"{_PREFIX}create" else held
            if isinstance(named, str) and named.startswith("ses"):
                return named
            if earliest is None and isinstance(held, dict):
                earliest = text(held.get("id"))
    return earliest


def _order(record: StoredRecord) -> tuple[Any, ...]:
    name, event = record.value["event"]
    time = checked_moment(event.get("processed_at"))
    return (not name.endswith(".create"), time is None, time.timestamp() if time is not None else 0.0, str(event.get("id")))


def _model(agent: Any) -> str | None:
    model = agent.get("model") if isinstance(agent, dict) else None
    return text(model.get("id") if isinstance(model, dict) else model)


def _usage(event: dict[str, Any]) -> tuple[int | None, int | None]:
    used = event["model_usage"] if isinstance(event.get("model_usage"), dict) else {}
    asked = [used.get(key) for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
    known = [count for part in asked if (count := counted(part)) is not None]
    return (sum(known) if known else None), counted(used.get("output_tokens"))
