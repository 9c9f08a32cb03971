"""Format `otlp_genai`: OTLP/JSON, what an OpenTelemetry collector or exporter writes to a file: ExportTraceServiceRequest.

One request is the file or a line of it; each span inside is a record, stored with its resource and scope. Attributes are
lists of {key, value: {stringValue | intValue | …}}, 64-bit numbers are strings, ids hex. Spans stand in the order in which
they ended: a root is last. A file may be called .json and hold a request a line. Spans that have nothing to do with models
may stand between those that do, since they carry the nesting.
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

ADVICE = "the exporter must record the content of messages (OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true)"
_REQUESTS = ("resourceSpans", "resource_spans")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_ERROR = (2, "2", "STATUS_CODE_ERROR", "ERROR")


class OtlpGenai:
    """The format; see LogFormat."""

    name = "otlp_genai"
    parser_version = 2
    what = "OTLP/JSON traces with GenAI, OpenInference, OpenLLMetry or Vercel AI attributes"
    gives = frozenset({"model", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """A request, or a list or lines of them."""
        return any(isinstance(first(value, *_REQUESTS), list) for value in (head.object, head.item, *head.rows[:1]))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per span."""
        return split_nested(path, start, line, _paths, _facts)

    def spell(self, value: Any) -> Spelled:
        """Messages of a call; nothing of other spans."""
        return spelled_of(_span(value))

    def placed(self, value: Any) -> Facts:
        """Where a stored value belongs, which is not as it was logged (placed_anew.py)."""
        return _facts_of(value)

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts of one trace."""
        return bundle_of(logged(_span(record.value), record) for record in records)


def plain(value: Any) -> Any:
    """An AnyValue as JSON; int64 is written as a string."""
    if not isinstance(value, dict) or len(value) != 1:
        return None if value == {} else value
    ((kind, held),) = value.items()
    if kind in ("intValue", "int_value"):
        return int(held) if isinstance(held, (int, str)) and str(held).lstrip("-").isdigit() else held
    if kind in ("arrayValue", "array_value"):
        return [plain(inner) for inner in (held or {}).get("values") or ()]
    if kind in ("kvlistValue", "kvlist_value"):
        return attributes((held or {}).get("values"))
    return held


def attributes(listed: Any) -> dict[str, Any]:
    """Attributes as an object."""
    if isinstance(listed, dict):  # some converters write them plainly
        return listed
    pairs = [item for item in listed or () if isinstance(item, dict) and isinstance(item.get("key"), str)]
    return {item["key"]: plain(item.get("value")) for item in pairs}


def _paths(document: Any) -> list[tuple[str, ...]]:
    requests = document if isinstance(document, list) else [document]
    if not any(isinstance(request, dict) and first(request, *_REQUESTS) is not None for request in requests):
        raise BadPieceError("wrong_shape", "no resourceSpans")
    before = ("*",) if isinstance(document, list) else ()
    return [(*before, asked, "*", scope, "*", "spans", "*") for asked in _REQUESTS for scope in _SCOPES]


def _facts(item: Any, document: Any, place: tuple[Any, ...]) -> Facts:
    resource, scope = None, None
    around: Any = document
    for before, step in zip((None, *place), place, strict=False):
        around = around[step]
        if before in _REQUESTS:
            resource = around.get("resource")
        if before in _SCOPES:
            scope = first(around, "scope", "instrumentationLibrary")
    return _facts_of({"resource": resource, "scope": scope, "span": item})


def _facts_of(value: dict[str, Any]) -> Facts:
    return facts_of(readable(_span, value, ADVICE), value)


def _span(value: Any) -> Span:
    item = value["span"]
    if not isinstance(item, dict):
        raise BadPieceError("wrong_shape", "a span is no object")
    span_id, trace_id = first(item, "spanId", "span_id"), first(item, "traceId", "trace_id")
    if not isinstance(span_id, str) or not isinstance(trace_id, str) or not span_id or not trace_id:
        raise BadPieceError("wrong_shape", "a span without traceId and spanId")
    events = item.get("events")
    status = item["status"] if isinstance(item.get("status"), dict) else {}
    resource = attributes(value["resource"].get("attributes")) if isinstance(value.get("resource"), dict) else {}
    service = text(resource.get("service.name"))
    return span_of(
        span_id=span_id,
        trace_id=trace_id,
        parent_id=text(first(item, "parentSpanId", "parent_span_id")),
        name=str(item.get("name") or ""),
        attributes=attributes(item.get("attributes")),
        events=[{**event, "attributes": attributes(event.get("attributes"))} for event in events if isinstance(event, dict)]
        if isinstance(events, list)
        else [],
        started_at=first(item, "startTimeUnixNano", "start_time_unix_nano"),
        ended_at=first(item, "endTimeUnixNano", "end_time_unix_nano"),
        error=str(status.get("message") or "") if status.get("code") in _ERROR else None,
        harness=None if service is None or service.startswith("unknown_service") else service,
    )
