"""Format `vercel_ai`: spans of the Vercel AI SDK as OpenTelemetry's JavaScript SDK holds them, in a list or a line each.

`ai.generateText.doGenerate` and `ai.streamText.doStream` are the calls; `ai.generateText` around them repeats prompt and
last answer and is read for nesting only, as are `ai.toolCall` and `ai.embed`. Messages stand in `ai.prompt.messages`, answers
in `ai.response.*`. Times are [seconds, nanoseconds].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.nested import split_nested
from pipelines.landing.shapes import first, text
from pipelines.landing.span_attempts import bundle_of
from pipelines.landing.span_attributes import span_of
from pipelines.landing.spans import Span, facts_of, logged, readable, spelled_of

ADVICE = "telemetry must record them (recordInputs and recordOutputs of experimental_telemetry)"
_ERROR = 2


class VercelAi:
    """The format; see LogFormat."""

    name = "vercel_ai"
    parser_version = 2
    what = "Vercel AI SDK spans (ai.prompt.messages, ai.response.*) of OpenTelemetry for JavaScript"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """Objects with a spanContext, in a list, by themselves or a line each."""
        return any(_ids(value) is not None for value in (head.object, head.item, *head.rows[:1]))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per span."""
        return split_nested(path, start, line, _paths, _facts)

    def spell(self, value: Any) -> Spelled:
        """Messages of a call; nothing of other spans."""
        return spelled_of(_span(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts of one trace."""
        return bundle_of(logged(_span(record.value), record) for record in records)


def _paths(document: Any) -> list[tuple[str, ...]]:
    return [("*",)] if isinstance(document, list) else [()]


def _facts(item: Any, document: Any, place: tuple[Any, ...]) -> Facts:
    return facts_of(readable(_span, item, ADVICE))


def _ids(value: Any) -> tuple[str, str] | None:
    context = first(value, "spanContext", "_spanContext") if isinstance(value, dict) else None
    if not isinstance(context, dict):
        return None
    trace_id, span_id = text(context.get("traceId")), text(context.get("spanId"))
    return None if trace_id is None or span_id is None else (trace_id, span_id)


def _span(value: Any) -> Span:
    ids = _ids(value)
    if ids is None:
        raise BadPieceError("wrong_shape", "a span without traceId and spanId")
    attributes = value.get("attributes")
    if not isinstance(attributes, dict):
        raise BadPieceError("wrong_shape", "a span without attributes")
    parent = value.get("parentSpanContext")
    status = value["status"] if isinstance(value.get("status"), dict) else {}
    return span_of(
        span_id=ids[1],
        trace_id=ids[0],
        parent_id=text(parent.get("spanId") if isinstance(parent, dict) else value.get("parentSpanId")),
        name=str(attributes.get("ai.telemetry.functionId") or value.get("name") or ""),
        attributes=attributes,
        events=value["events"] if isinstance(value.get("events"), list) else [],
        started_at=value.get("startTime"),
        ended_at=value.get("endTime"),
        error=str(status.get("message") or "") if status.get("code") == _ERROR else None,
    )
