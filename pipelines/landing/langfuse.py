"""Format `langfuse`: exports of Langfuse: {trace, observations}, traces with their observations inside, lists, API pages
and JSONL of observations, traces or scores.

An observation is a record; its trace's header, which holds the scores, is one too. Input and output are what the traced
framework saw, as JSON strings, objects or lists in its provider's shape. Every GENERATION repeats what came before it;
SPAN, CHAIN and AGENT repeat what their generations say. Column names are camelCase in the interface's exports and snake_case
in those to a bucket. An export may leave inputs and outputs out: such generations are refused, since nothing can be learnt
from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.nested import split_nested
from pipelines.landing.provider_messages import UnreadableMessagesError, answers_of, messages_of
from pipelines.landing.provider_tools import tool_list, tools_of
from pipelines.landing.shapes import counted, first, text, unpacked
from pipelines.landing.span_attempts import bundle_of
from pipelines.landing.span_attributes import flat, tools_said
from pipelines.landing.spans import Kind, Score, Span, fault_of, logged, readable, spelled_of

ADVICE = "export the observations with input and output (fields=core,basic,io,usage)"
KINDS: dict[str, Kind] = {"GENERATION": "call", "AGENT": "agent", "TOOL": "tool"}
_TYPES = {*KINDS, "SPAN", "EVENT", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"}
_HEADER = ("id", "name", "timestamp", "sessionId", "session_id", "scores", "updatedAt", "updated_at", "version", "release")


class Langfuse:
    """The format; see LogFormat."""

    name = "langfuse"
    parser_version = 2
    what = "Langfuse exports: traces with observations, or observations, traces and scores as lists or JSONL"
    gives = frozenset({"outcome", "model", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """A trace beside or around its observations; else observations, traces or scores in a list, a page or lines."""
        if isinstance(head.object.get("observations"), list) and ("trace" in head.object or _is_header(head.object)):
            return True
        page = head.object.get("data")
        listed = page[:1] if isinstance(page, list) else []
        return any(_is_row(value) for value in (head.object, head.item, *listed, *head.rows[:1]))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per observation, trace header or score."""
        return split_nested(path, start, line, _paths, _facts)

    def spell(self, value: Any) -> Spelled:
        """Messages of a generation; nothing of others."""
        return spelled_of(_span(value))

    def placed(self, value: Any) -> Facts:
        """Where a stored value belongs, which is not as it was logged (placed_anew.py)."""
        return _facts_of(value)

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts of one trace."""
        return bundle_of(logged(_span(record.value), record) for record in records)


def _paths(document: Any) -> list[tuple[str, ...]]:
    if isinstance(document, list):
        return [("*", "observations", "*")] if document and _has_inside(document[0]) else [("*",)]
    if not isinstance(document, dict):
        raise BadPieceError("wrong_shape", "neither a trace nor an observation")
    if isinstance(document.get("trace"), dict) and isinstance(document.get("observations"), list):
        return [("trace",), ("observations", "*")]
    if _has_inside(document):
        return [("observations", "*")]
    if isinstance(page := document.get("data"), list) and not _is_row(document):
        return [("data", "*", "observations", "*")] if page and _has_inside(page[0]) else [("data", "*")]
    return [()]


def _has_inside(value: Any) -> bool:
    """A trace with its observations as objects inside; lists of traces name only their ids there."""
    observations = value.get("observations") if isinstance(value, dict) else None
    return isinstance(observations, list) and any(isinstance(inner, dict) for inner in observations)


def _facts(item: Any, document: Any, place: tuple[Any, ...]) -> Facts:
    if not isinstance(item, dict):
        raise BadPieceError("wrong_shape", "neither a trace nor an observation")
    value: dict[str, Any] = {_word(item): item}
    if "observation" in value and len(place) >= 2 and place[-2] == "observations":
        around = document
        for step in place[:-2]:
            around = around[step]
        if not isinstance(around.get("trace"), dict):  # its header has no bytes of its own
            value["trace"] = {key: around[key] for key in _HEADER if key in around}
    return _facts_of(value)


def _facts_of(value: dict[str, Any]) -> Facts:
    span = readable(_span, value, ADVICE)
    return Facts(
        vendor_id=f"{span.trace_id}/{span.span_id}",
        bundle_ref=span.trace_id,
        time=span.ended_at or span.started_at,
        value=value,
    )


def _word(item: dict[str, Any]) -> str:
    if str(item.get("type") or "").upper() in _TYPES:
        return "observation"
    return "score" if _tree_id(item) is not None and ("dataType" in item or "data_type" in item) else "trace"


def _is_row(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if str(value.get("type") or "") in _TYPES and _tree_id(value) is not None:
        return "startTime" in value or "start_time" in value
    return _is_header(value) or ("value" in value and "name" in value and _word(value) == "score")


def _is_header(value: dict[str, Any]) -> bool:
    named = isinstance(value.get("id"), str) and "timestamp" in value and ("name" in value or "input" in value)
    return named and any(key in value for key in ("projectId", "project_id", "bookmarked", "public", "htmlPath"))


def _tree_id(item: dict[str, Any]) -> str | None:
    return text(first(item, "traceId", "trace_id"))


def _span(value: Any) -> Span:
    if "observation" not in value:
        return _header(value)
    item = value["observation"]
    trace_id, span_id = _tree_id(item) or (value.get("trace") or {}).get("id"), text(item.get("id"))
    if not isinstance(trace_id, str) or span_id is None:
        raise BadPieceError("wrong_shape", "an observation without id and traceId")
    kind = KINDS.get(str(item.get("type")).upper(), "other")
    attributes = _attributes(item)
    request, answers = _chat(item) if kind == "call" else ([], [])
    usage = first(item, "usageDetails", "usage_details", "usage")
    usage = usage if isinstance(usage, dict) else {}
    failed = item.get("level") == "ERROR"
    return Span(
        span_id=span_id,
        trace_id=trace_id,
        parent_id=text(first(item, "parentObservationId", "parent_observation_id")),
        name=str(item.get("name") or ""),
        kind=kind,
        started_at=checked_moment(first(item, "startTime", "start_time")),
        ended_at=checked_moment(first(item, "endTime", "end_time")),
        request=request,
        answers=answers,
        tools=_tools(item, attributes) if kind == "call" else None,
        model=text(first(item, "model", "providedModelName", "provided_model_name")),
        num_prompt_tokens=counted(first(usage, "input", "promptTokens") or item.get("promptTokens")),
        num_reply_tokens=counted(first(usage, "output", "completionTokens") or item.get("completionTokens")),
        cost_usd=_cost(item),
        fault=fault_of(first(item, "statusMessage", "status_message"), kind) if failed else None,
        tool_name=text(first(attributes, "gen_ai.tool.name", "tool.name")),
        tool_call_id=text(first(attributes, "gen_ai.tool.call.id", "tool_call.id")),
        tool_arguments=unpacked(item.get("input")) if kind == "tool" else None,
        scores=_scores(value["trace"]) if isinstance(value.get("trace"), dict) else (),
        revision=str(first(item, "updatedAt", "updated_at") or ""),
    )


def _header(value: dict[str, Any]) -> Span:
    """A trace's header, or a score that was exported by itself."""
    word, item = next(iter(value.items()))
    span_id = text(item.get("id"))
    trace_id = span_id if word == "trace" else _tree_id(item)
    if span_id is None or trace_id is None:
        raise BadPieceError("wrong_shape", f"a {word} without id")
    return Span(
        span_id=span_id,
        trace_id=trace_id,
        name=str(item.get("name") or ""),
        kind="trace",
        started_at=checked_moment(item.get("timestamp")),
        scores=_scores(item) if word == "trace" else _scores({"scores": [item]}),
        revision=str(first(item, "updatedAt", "updated_at") or ""),
    )


def _chat(item: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    try:
        request = messages_of(_said(item, "input"))
    except UnreadableMessagesError as problem:
        raise BadPieceError("wrong_shape", f"the input of {item['id']} has no known shape: {problem}") from None
    output = unpacked(_said(item, "output"))
    has_system = any(message["role"] in ("system", "developer") for message in request)
    if not has_system and isinstance(output, dict) and isinstance(output.get("instructions"), str):
        request = [{"role": "system", "content": output["instructions"]}, *request]  # the Responses API says them here only
    return request, answers_of(output)


def _said(item: dict[str, Any], side: str) -> Any:
    held = item.get(side)
    return None if held == "null" else held  # the JSON of nothing


def _tools(item: dict[str, Any], attributes: dict[str, Any]) -> list[Any] | None:
    held = unpacked(first(item, "toolDefinitions", "tool_definitions"))
    if isinstance(held, dict):
        defined = [{"name": name, **tool} if isinstance(tool := unpacked(text), dict) else text for name, text in held.items()]
    else:
        defined = held if isinstance(held, list) else []
    parameters = unpacked(first(item, "modelParameters", "model_parameters"))
    return (
        tool_list(defined)
        or tools_of(item.get("input"))
        or tools_of(item.get("output"))
        or (tools_of(parameters) if isinstance(parameters, dict) else None)
        or tools_said(attributes)
    )


def _attributes(item: dict[str, Any]) -> dict[str, Any]:
    """Of the OpenTelemetry span that the observation was made of."""
    metadata = unpacked(item.get("metadata"))
    return flat(metadata.get("attributes")) if isinstance(metadata, dict) else {}


def _scores(holder: dict[str, Any]) -> list[Score]:
    listed = unpacked(holder.get("scores"))
    found: list[Score] = []
    for score in listed if isinstance(listed, list) else ():
        value = score.get("value") if isinstance(score, dict) else None
        if not isinstance(value, (int, float)) or str(first(score, "dataType", "data_type") or "NUMERIC") == "CATEGORICAL":
            continue
        span_id = text(first(score, "observationId", "observation_id"))
        found.append(Score(name=str(score.get("name") or "score"), value=float(value), span_id=span_id))
    return found


def _cost(item: dict[str, Any]) -> float | None:
    details = first(item, "costDetails", "cost_details")
    if isinstance(details, dict) and not details:
        return None  # total 0 only says that the model has no price
    held = details.get("total") if isinstance(details, dict) else None
    value = held if held is not None else first(item, "totalCost", "total_cost", "calculatedTotalCost")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
