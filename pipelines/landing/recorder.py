"""Format `recorder`: what nightshift's own recording door writes, one line per call to the model.

The only format with the sampler's exact token ids and logprobs, so the only one that the grpo lane can train from. The
calls of one attempt share an attempt_id and are stitched (stitching.py). The outcome and fault that they carry are those of
the attempt's longest chain; a call on the side (a summary, a branch that was given up) becomes an attempt of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import GIVES, Bundle, Piece, Spelled, StoredRecord, call_entry, uniform
from pipelines.landing.head import Head
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import utc
from pipelines.landing.pieces import quick
from pipelines.landing.redacted_tokens import TOKEN
from pipelines.landing.shapes import count, mapping
from pipelines.landing.stitching import LoggedCall, attempt_of, chains, shared_by_all


class Message(msgspec.Struct, kw_only=True):
    """One OpenAI chat message; further keys are the provider's and stay in the stored record."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None


class Request(msgspec.Struct, kw_only=True):
    """What was asked of the model."""

    messages: list[Message]
    tools: list[Any] | None = None
    sampling: dict[str, Any] | None = None


class Response(msgspec.Struct, kw_only=True):
    """What it answered."""

    message: Message
    finish_reason: str | None = None


class Call(msgspec.Struct, kw_only=True):
    """One line."""

    recorder: Literal[1]
    kind: Literal["call"]
    call_id: str
    attempt_id: str
    harness: str | None = None
    task_id: str | None = None
    attempt: int | None = None
    purpose: Literal["production", "top_up", "evaluation"] = "production"
    policy_version: str | None = None
    model: str | None = None
    request: Request
    response: Response | None = None
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    redacted_spans: None = None
    """Written by redaction, never by the recorder."""
    started_at: str
    ended_at: str | None = None
    outcome: float | None = None
    fault: str | None = None


_NULL = msgspec.Raw(b"null")
_DIGITS = b"0123456789, \t\r\n"
_REALS = _DIGITS + b".eE+-"


class Recorder:
    """The format; see LogFormat."""

    name = "recorder"
    parser_version = 3
    what = "nightshift's own recording door, one line per call"
    gives = frozenset(GIVES)
    unique_calls = frozenset({"call"})
    names_attempts = True

    def detect(self, head: Head) -> bool:
        """A line among the first is an object with `recorder` and `kind`, or the first is still being written."""
        return head.text.startswith(b'{"recorder":') or any("recorder" in row and "kind" in row for row in head.rows)

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line."""
        return split_lines(path, start, line, _facts, partial(quick, facts=_quick_facts))

    def spell(self, value: Any) -> Spelled:
        """The request's messages and the answer."""
        answer = [value["response"]["message"]] if value.get("response") else []
        return Spelled(
            turns=[uniform(message, call=None) for message in (*value["request"]["messages"], *answer)],
            tools=value["request"].get("tools"),
            task_id=value.get("task_id"),
        )

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempt of these calls, and its branches; an outcome belongs to the whole attempt, which its last call ends."""
        lines = sorted(records, key=_order)
        latest = {record.value["call_id"]: record for record in lines}  # a call that was written twice counts as its last line
        kept = list(latest.values())
        values = [record.value for record in kept]
        last = values[-1]
        outcomes = [value["outcome"] for value in values if value.get("outcome") is not None]
        fault = last.get("fault")
        facts: dict[str, Any] = {
            "harness": last.get("harness"),
            "task_id": last.get("task_id"),
            "attempt": last.get("attempt"),
            "purpose": last.get("purpose") or "production",
            "policy_version": shared_by_all([value.get("policy_version") for value in values]),
            "model": shared_by_all([value.get("model") for value in values]),
        }
        ended = {
            "outcome": outcomes[-1] if outcomes and fault is None else None,
            "outcome_source": "log" if outcomes and fault is None else None,
            "fault": fault,
        }
        found = chains([_call(record) for record in kept])
        # what the attempt came to is said of its longest chain, of equally long ones of that which ends last
        main = max(found, key=lambda chain: (len([c for c in chain.calls if c.answer]), chain.last.order))
        main.ref = ""  # the attempt keeps its id when a call before its first arrives late
        attempts = [
            attempt_of(chain, first_is_whole=True, **facts, **(ended if chain is main else {"fault": None})) for chain in found
        ]
        holder = {record_id: attempt.ref for attempt in attempts for record_id in attempt.record_ids}
        left: dict[str, tuple[str | None, str]] = {
            record.record_id: (holder[standing.record_id], "superseded")
            for record in lines
            if (standing := latest[record.value["call_id"]]) is not record
        }
        return Bundle(attempts=attempts, left=left)


def _facts(value: Any) -> Facts:
    try:
        call = msgspec.convert(value, Call)
    except msgspec.ValidationError as problem:
        raise BadPieceError("wrong_shape", str(problem)) from None
    if not call.call_id or not call.attempt_id:
        raise BadPieceError("wrong_shape", "call_id and attempt_id must not be empty")
    if not call.request.messages:
        raise BadPieceError("wrong_shape", "request.messages is empty")
    if call.response is None and call.fault is None:
        raise BadPieceError("wrong_shape", "neither a response nor a fault")
    if call.logprobs is not None and (call.token_ids is None or len(call.token_ids) != len(call.logprobs)):
        raise BadPieceError("wrong_shape", "logprobs and token_ids have not the same length")
    if call.outcome is not None and not 0 <= call.outcome <= 1:
        raise BadPieceError("wrong_shape", f"outcome {call.outcome} is outside [0, 1]")
    started = utc(call.started_at)
    return Facts(vendor_id=call.call_id, bundle_ref=call.attempt_id, time=utc(call.ended_at) if call.ended_at else started)


class _QuickMessage(msgspec.Struct):
    role: str
    content: msgspec.Raw = _NULL
    tool_calls: msgspec.Raw = _NULL


class _QuickRequest(msgspec.Struct):
    messages: list[_QuickMessage]
    tools: msgspec.Raw = _NULL
    sampling: msgspec.Raw = _NULL


class _QuickResponse(msgspec.Struct):
    message: _QuickMessage
    finish_reason: str | None = None


class _QuickCall(msgspec.Struct):
    """`Call` without the values of its long parts."""

    recorder: Literal[1]
    kind: Literal["call"]
    call_id: str
    attempt_id: str
    request: _QuickRequest
    started_at: str
    harness: str | None = None
    task_id: str | None = None
    attempt: int | None = None
    purpose: Literal["production", "top_up", "evaluation"] = "production"
    policy_version: str | None = None
    model: str | None = None
    response: _QuickResponse | None = None
    prompt_token_ids: msgspec.Raw = _NULL
    token_ids: msgspec.Raw = _NULL
    logprobs: msgspec.Raw = _NULL
    redacted_spans: None = None
    ended_at: str | None = None
    outcome: float | None = None
    fault: str | None = None


_QUICK = msgspec.json.Decoder(_QuickCall)


def _quick_facts(raw: bytes) -> Facts | None:
    """What `_facts` reads, where the line is plainly of the right shape; None where that has to be looked at."""
    try:
        call = _QUICK.decode(raw)
    except (ValueError, RecursionError):
        return None
    answer = call.response
    plain = (
        call.call_id
        and call.attempt_id
        and call.request.messages
        and (answer is not None or call.fault is not None)
        and (call.outcome is None or 0 <= call.outcome <= 1)
        and all(map(_plain, call.request.messages))
        and (answer is None or _plain(answer.message))
        and memoryview(call.request.tools)[0] in b"[n"
        and memoryview(call.request.sampling)[0] in b"{n"
    )
    if not plain:
        return None
    num_prompt, num_ids = _num_plain(call.prompt_token_ids, _DIGITS), _num_plain(call.token_ids, _DIGITS)
    num_logprobs = _num_plain(call.logprobs, _REALS)
    if num_prompt is None or num_ids is None or num_logprobs is None or (num_logprobs >= 0 and num_ids != num_logprobs):
        return None
    try:
        time = utc(call.ended_at or call.started_at)
        utc(call.started_at)
    except BadPieceError:
        return None
    return Facts(vendor_id=call.call_id, bundle_ref=call.attempt_id, time=time)


def _plain(message: _QuickMessage) -> bool:
    return memoryview(message.content)[0] in b'"n' and memoryview(message.tool_calls)[0] in b"n"


def _num_plain(raw: msgspec.Raw, of: bytes) -> int | None:
    """How many numbers the list holds, -1 where it is null, None where it is no plain list of such numbers."""
    text = bytes(raw)
    if text == b"null":
        return -1
    if text.translate(None, of) != b"[]":
        return None
    return text.count(b",") + 1 if len(text.strip(b"[] \t\r\n")) else 0


def _order(record: StoredRecord) -> tuple[Any, ...]:
    value = record.value
    return utc(value["started_at"]), value["call_id"], utc(value.get("ended_at") or value["started_at"]), record.record_id


def _call(record: StoredRecord) -> LoggedCall:
    value, turns = record.value, record.spelled.turns
    usage = mapping(value.get("usage"))
    response = value.get("response")
    entry = call_entry(
        call_id=value["call_id"],
        prompt_token_ids=value.get("prompt_token_ids"),
        token_ids=value.get("token_ids"),
        # what was sampled after a secret was sampled after the secret, not after its token: those logprobs belong to a text that
        # is not stored, and no ratio to them would be honest
        logprobs=None if _holds_token(value) else value.get("logprobs"),
        finish_reason=response.get("finish_reason") if response else None,
        redacted_spans=value.get("redacted_spans"),
    )
    return LoggedCall(
        record_ids=[record.record_id],
        prompt=turns[:-1] if response else turns,
        answer=turns[-1] if response else None,
        call_id=value["call_id"],
        entry=entry,
        tools=record.spelled.tools,
        started_at=utc(value["started_at"]),
        ended_at=utc(value.get("ended_at") or value["started_at"]),
        num_prompt_tokens=count(usage.get("prompt_tokens")),
        num_reply_tokens=count(usage.get("completion_tokens")),
    )


def _holds_token(value: dict[str, Any]) -> bool:
    messages = [*value["request"]["messages"], (value.get("response") or {}).get("message") or {}]
    texts = (message.get("content") for message in messages)
    return any(isinstance(text, str) and TOKEN.search(text) is not None for text in texts)
