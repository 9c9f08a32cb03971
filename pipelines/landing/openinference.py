"""Format `openinference`: spans as plain JSON objects, one a line or in a list: what Phoenix, Arize and OpenTelemetry's own
JSON dump write, with OpenInference attributes (`llm.input_messages.0.message.content`) flat, nested, or as columns of a
table (`attributes.llm.…`).

Ids may have a leading 0x, times are ISO strings or numbers. Spans stand in the order in which they ended. The same
attributes inside OTLP are read by otlp_genai.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.nested import split_nested
from pipelines.landing.shapes import first, text, unpacked
from pipelines.landing.span_attempts import bundle_of
from pipelines.landing.span_attributes import flat, span_of
from pipelines.landing.spans import Span, facts_of, logged, readable, spelled_of

ADVICE = "the instrumentation must not hide inputs and outputs (OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS)"
_LISTS = ("spans", "data")
_SDK_KINDS = ("INTERNAL", "CLIENT", "SERVER", "PRODUCER", "CONSUMER")


class OpenInference:
    """The format; see LogFormat."""

    name = "openinference"
    parser_version = 2
    what = "OpenInference spans as JSON objects (Phoenix, Arize, OpenTelemetry's JSON dump)"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """Objects with a context of trace_id and span_id, in a list, by themselves or a line each."""
        listed = [value for key in _LISTS if isinstance(held := head.object.get(key), list) for value in held[:1]]
        return any(_ids(value) is not None for value in (head.object, head.item, *listed, *head.rows[:1]))

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
    if isinstance(document, list):
        return [("*",)]
    if isinstance(document, dict) and _ids(document) is None:
        for key in _LISTS:
            if isinstance(document.get(key), list):
                return [(key, "*")]
    return [()]


def _facts(item: Any, document: Any, place: tuple[Any, ...]) -> Facts:
    return facts_of(readable(_span, item, ADVICE))


def _ids(value: Any) -> tuple[str, str] | None:
    """Ids of trace and span; None where the value is no such span."""
    if not isinstance(value, dict):
        return None
    context = value["context"] if isinstance(value.get("context"), dict) else {}
    trace_id = first(context, "trace_id", "traceId") or value.get("context.trace_id")
    span_id = first(context, "span_id", "spanId") or value.get("context.span_id")
    if not isinstance(trace_id, str) or not isinstance(span_id, str) or not trace_id or not span_id:
        return None
    return _bare(trace_id), _bare(span_id)


def _bare(name: str) -> str:
    return name.removeprefix("0x")


def _span(value: Any) -> Span:
    ids = _ids(value)
    if ids is None:
        raise BadPieceError("wrong_shape", "a span without trace_id and span_id")
    attributes = {key.removeprefix("attributes."): held for key, held in flat(value).items() if key.startswith("attributes.")}
    kind = value.get("span_kind")
    if isinstance(kind, str) and kind.rpartition(".")[2] not in _SDK_KINDS:
        attributes.setdefault("openinference.span.kind", kind)
    status = value["status"] if isinstance(value.get("status"), dict) else {}
    code = str(value.get("status_code") or status.get("status_code") or "").rpartition(".")[2]
    parent = first(value, "parent_id", "parentId", "parent_span_id")
    events = unpacked(value.get("events"))
    resource = value["resource"].get("attributes") if isinstance(value.get("resource"), dict) else None
    service = text(resource.get("service.name")) if isinstance(resource, dict) else None
    return span_of(
        span_id=ids[1],
        trace_id=ids[0],
        parent_id=_bare(parent) if isinstance(parent, str) else None,
        name=str(value.get("name") or ""),
        attributes=attributes,
        events=events if isinstance(events, list) else [],
        started_at=first(value, "start_time", "startTime"),
        ended_at=first(value, "end_time", "endTime"),
        error=str(value.get("status_message") or status.get("description") or "") if code == "ERROR" else None,
        harness=None if service is None or service.startswith("unknown_service") else service,
    )
