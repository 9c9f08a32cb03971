"""A span of a trace in uniform words, whichever tool exported it.

Five formats log the same thing: a tree of spans, some of which are calls of a model, others the agents, tools and framework
steps around them. Each format reads its own spans into `Span`; span_attempts.py makes attempts of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Spelled, StoredRecord, uniform
from pipelines.landing.shapes import check_turns

Kind = Literal["call", "agent", "tool", "other", "trace"]
"""`trace`: what is said about the whole trace."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A number or a yes/no that somebody gave to a span, or to the trace."""

    name: str
    value: float
    span_id: str | None = None
    """None: of the whole trace."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """One span; what it does not say is None."""

    span_id: str
    trace_id: str
    parent_id: str | None = None
    name: str = ""
    kind: Kind = "other"
    started_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None
    request: Sequence[dict[str, Any]] = ()
    """Of a call: its messages in OpenAI's shape."""
    answers: Sequence[dict[str, Any]] = ()
    """One message for each choice."""
    tools: list[Any] | None = None
    model: str | None = None
    num_prompt_tokens: int | None = None
    num_reply_tokens: int | None = None
    cost_usd: float | None = None
    fault: str | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_arguments: Any = None
    harness: str | None = None
    task_id: str | None = None
    scores: Sequence[Score] = ()
    revision: str = ""
    """Of two states of one span the one with the greater revision counts."""


@dataclass(frozen=True, kw_only=True)
class LoggedSpan:
    """A span with the records that it was read from and its turns."""

    span: Span
    records: list[StoredRecord]
    request: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)


def spelled_of(span: Span) -> Spelled:
    """What a span says: the turns of its request and its answers."""
    turns = [uniform(message, call=None) for message in span.request]
    turns += [uniform(answer, call=0) for answer in span.answers]
    return Spelled(turns=turns, tools=span.tools, task_id=span.task_id)


def logged(span: Span, record: StoredRecord) -> LoggedSpan:
    """A span that is one record."""
    turns = record.spelled.turns
    count = len(span.request)
    return LoggedSpan(span=span, records=[record], request=turns[:count], answers=turns[count:])


def facts_of(span: Span, value: Any = None) -> Facts:
    """Where a span belongs whose id is unique in its trace only; `value` is stored in its place where it is not None."""
    time = span.ended_at or span.started_at
    return Facts(vendor_id=f"{span.trace_id}/{span.span_id}", bundle_ref=span.trace_id, time=time, value=value)


def readable(read: Callable[[Any], Span], value: Any, advice: str) -> Span:
    """The span that `read` makes of a value, or BadPieceError where it cannot, or where stage 2 could not spell it.

    A call without its content is refused too: nothing could be learnt from it, and no attempt may seem empty. `advice` says
    how such logs get their content.
    """
    try:
        span = read(value)
        check_turns(spelled_of(span).turns)
    except BadPieceError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as problem:
        raise BadPieceError("wrong_shape", f"{type(problem).__name__}: {problem}"[:200]) from None
    if span.kind == "call" and not span.request and not span.answers and span.fault is None:
        raise BadPieceError("wrong_shape", f"call {span.span_id} has neither input nor output: {advice}")
    return span


def fault_of(message: Any, kind: Kind) -> str:
    """The fault of a span that ended in an error: what its text says, else whose span it was."""
    said = str(message or "").lower()
    if any(word in said for word in ("cancel", "interrupt", "abort")):
        return "aborted"
    if "timeout" in said or "timed out" in said:
        return "timeout"
    return "model_error" if kind == "call" else "harness_error"
