"""Format `recorder`: what nightshift's own recording door writes, one line per call to the model.

The only format with the sampler's exact token ids and logprobs, so the only one that the grpo lane can train from. The
calls of one attempt share an attempt_id; a call whose request repeats the last one's messages and its answer goes on
from it, and the longest such chain is what the attempt's turns are. Calls outside it (a summary written on the side, a
branch that was given up) keep their entry in `calls` without a turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import orjson

from pipelines.landing.decoding import BadPieceError, Facts, utc
from pipelines.landing.format import GIVES, Attempt, Piece, StoredRecord, asked, uniform
from pipelines.landing.jsonl import BOM, first_values, split_lines


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
    started_at: str
    ended_at: str | None = None
    outcome: float | None = None
    fault: str | None = None


class Recorder:
    """The format; see LogFormat."""

    name = "recorder"
    parser_version = 1
    what = "nightshift's own recording door, one line per call"
    gives = frozenset(GIVES)

    def detect(self, head: bytes, path: Path) -> bool:
        """A line among the first is an object with `recorder` and `kind`, or the first is still being written."""
        if head.removeprefix(BOM).startswith(b'{"recorder":'):
            return True
        return any(isinstance(value, dict) and "recorder" in value and "kind" in value for value in first_values(head))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per line."""
        return split_lines(path, start, line, _facts)

    def attempt(self, records: Sequence[StoredRecord]) -> Attempt:
        """The attempt of these calls."""
        lines = sorted(((orjson.loads(record.raw), record) for record in records), key=_order)
        latest = {value["call_id"]: value for value, _ in lines}  # a call that was written twice counts as its last line
        values = list(latest.values())
        answered = [value for value in values if value.get("response")]
        calls = [_call_entry(value) for value in answered]
        chain = _longest_chain(answered)
        turns = _turns(answered, chain) if chain else [uniform(m, call=None) for m in values[-1]["request"]["messages"]]
        system, request = asked(turns)
        last = values[-1]
        outcomes = [value["outcome"] for value in values if value.get("outcome") is not None]
        fault = last.get("fault")
        return Attempt(
            record_ids=[record.record_id for _, record in lines],
            turns=turns,
            calls=calls,
            harness=last.get("harness"),
            task_id=last.get("task_id"),
            attempt=last.get("attempt"),
            purpose=last.get("purpose") or "production",
            policy_version=_shared_by_all(values, "policy_version"),
            model=_shared_by_all(values, "model"),
            system=system,
            tools=answered[chain[-1]]["request"].get("tools") if chain else last["request"].get("tools"),
            request=request,
            outcome=outcomes[-1] if outcomes and fault is None else None,
            outcome_source="log" if outcomes and fault is None else None,
            fault=fault,
            started_at=utc(values[0]["started_at"]),
            ended_at=max(utc(value.get("ended_at") or value["started_at"]) for value in values),
        )


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
    return Facts(vendor_id=call.call_id, attempt_ref=call.attempt_id, time=utc(call.ended_at) if call.ended_at else started)


def _order(pair: tuple[dict[str, Any], StoredRecord]) -> tuple[Any, ...]:
    value, record = pair
    return utc(value["started_at"]), value["call_id"], utc(value.get("ended_at") or value["started_at"]), record.record_id


def _shared_by_all(values: Sequence[dict[str, Any]], key: str) -> Any:
    """What all calls say; None where they disagree, since no one version sampled such an attempt."""
    said = {value.get(key) for value in values}
    return said.pop() if len(said) == 1 else None


def _call_entry(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "call_id": value["call_id"],
        "prompt_token_ids": value.get("prompt_token_ids"),
        "token_ids": value.get("token_ids"),
        "logprobs": value.get("logprobs"),
        "finish_reason": value["response"].get("finish_reason"),
    }


def _longest_chain(answered: Sequence[dict[str, Any]]) -> list[int]:
    """Indices of the calls of the longest chain, of equally long ones that which ends last.

    Prefixes are compared by running hashes, so that a long attempt costs its total length and not its square.
    """
    ends: dict[bytes, int] = {}
    before: list[int | None] = []
    length: list[int] = []
    for index, value in enumerate(answered):
        messages = value["request"]["messages"]
        running, found = hashlib.sha256(), None
        for message in messages:
            running.update(_meaning(message))
            found = ends.get(running.digest(), found)
        before.append(found)
        length.append(1 if found is None else length[found] + 1)
        running.update(_meaning(value["response"]["message"]))
        ends[running.digest()] = index
    if not answered:
        return []
    position: int | None = max(range(len(answered)), key=lambda index: (length[index], index))
    chain: list[int] = []
    while position is not None:
        chain.append(position)
        position = before[position]
    return chain[::-1]


def _meaning(message: dict[str, Any]) -> bytes:
    """What makes two messages the same: not the reasoning, which many harnesses leave out when they send it back."""
    turn = uniform(message, call=None)
    kept = [turn["role"], turn["content"] or "", turn.get("tool_calls"), turn.get("tool_call_id")]
    return orjson.dumps(kept) + b"\n"


def _turns(answered: Sequence[dict[str, Any]], chain: Sequence[int]) -> list[dict[str, Any]]:
    last = answered[chain[-1]]
    sampled_at = {len(answered[index]["request"]["messages"]): index for index in chain}
    turns = []
    for position, message in enumerate([*last["request"]["messages"], last["response"]["message"]]):
        call = sampled_at.get(position)
        if call is None:
            turns.append(uniform(message, call=None))
        else:  # from the answer itself: what is sent back may have lost its reasoning
            response = answered[call]["response"]
            turns.append(uniform(response["message"], call=call, finish_reason=response.get("finish_reason")))
    return turns
