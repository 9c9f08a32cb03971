"""Format `langsmith`: runs of LangSmith, as its clients send them ({post: […], patch: […]}) or as they are exported (a list or
a line each).

A run is created with its inputs and patched with its outputs; JavaScript's patches name no id, which is the end of
`dotted_order`. Runs of type llm are the calls; chain and prompt runs repeat them; a tool run below which a model is called is
a subagent. Inputs are the provider's request or LangChain's messages, outputs an OpenAI answer or LangChain's generations.
Usage is missing from streams that did not ask for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.landing.decoding import BadPieceError, Facts
from pipelines.landing.format import Bundle, Piece, Spelled, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.moments import checked_moment
from pipelines.landing.nested import split_nested
from pipelines.landing.provider_messages import UnreadableMessagesError, answers_of, messages_of
from pipelines.landing.provider_tools import tools_of
from pipelines.landing.shapes import counted, first, text, unpacked
from pipelines.landing.span_attempts import bundle_of
from pipelines.landing.spans import Kind, LoggedSpan, Score, Span, fault_of, readable, spelled_of

ADVICE = "trace without LANGSMITH_HIDE_INPUTS and LANGSMITH_HIDE_OUTPUTS, or export the runs with inputs and outputs"
KINDS: dict[str, Kind] = {"llm": "call", "tool": "tool"}
_LISTS = ("post", "patch", "runs")


class LangSmith:
    """The format; see LogFormat."""

    name = "langsmith"
    parser_version = 2
    what = "LangSmith runs: create and update payloads, or exported runs"
    gives = frozenset({"task_id", "outcome", "model", "times"})
    unique_calls = frozenset({"call"})

    def detect(self, head: Head) -> bool:
        """Runs under post, patch or runs, in a list or a line each."""
        listed = [value for key in _LISTS if isinstance(held := head.object.get(key), list) for value in held[:1]]
        return any(_is_run(value) for value in (head.object, head.item, *listed, *head.rows[:1]))

    def split(self, path: Path, start: int = 0, line: int = 1) -> Iterator[Piece]:
        """One piece per run or patch."""
        return split_nested(path, start, line, _paths, _facts)

    def spell(self, value: Any) -> Spelled:
        """Messages of a run's inputs and outputs."""
        return spelled_of(_span(value))

    def attempts(self, records: Sequence[StoredRecord]) -> Bundle:
        """The attempts of one trace."""
        runs: dict[str, list[StoredRecord]] = {}
        for record in records:
            runs.setdefault(_run_id(record.value), []).append(record)
        return bundle_of(_merged(runs[run_id]) for run_id in sorted(runs))


def _paths(document: Any) -> list[tuple[str, ...]]:
    if isinstance(document, list):
        return [("*",)]
    if isinstance(document, dict) and not _is_run(document):
        return [(key, "*") for key in _LISTS if isinstance(document.get(key), list)] or [()]
    return [()]


def _facts(item: Any, document: Any, place: tuple[Any, ...]) -> Facts:
    if not _is_run(item):
        raise BadPieceError("wrong_shape", "a run without id, trace_id or dotted_order")
    span = readable(_span, item, ADVICE)
    return Facts(vendor_id=span.span_id, bundle_ref=span.trace_id, time=span.ended_at or span.started_at)


def _is_run(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("dotted_order") or value.get("trace_id"), str):
        return False
    return "run_type" in value or ("dotted_order" in value and ("outputs" in value or "end_time" in value))


def _run_id(run: dict[str, Any]) -> str:
    if (run_id := text(run.get("id"))) is not None:
        return run_id
    order = text(run.get("dotted_order"))
    if order is None:
        raise BadPieceError("wrong_shape", "a run without id and dotted_order")
    return order.rpartition(".")[2].partition("Z")[2] or order


def _span(run: dict[str, Any], *, is_merged: bool = False) -> Span:
    run_id = _run_id(run)
    run_type = run.get("run_type")
    kind = KINDS.get(str(run_type), "other")
    outputs = unpacked(run.get("outputs"))
    outputs = outputs if isinstance(outputs, dict) else {}
    try:
        request = messages_of(run.get("inputs")) if kind == "call" or run_type is None else []
        answers = answers_of(outputs) if outputs and (kind == "call" or run_type is None) else []
    except UnreadableMessagesError as problem:
        if kind == "call" and not is_merged:
            raise BadPieceError("wrong_shape", f"the inputs of run {run_id} have no known shape: {problem}") from None
        request, answers = [], []  # a patch does not say of what kind its run is
    extra = run["extra"] if isinstance(run.get("extra"), dict) else {}
    metadata = extra["metadata"] if isinstance(extra.get("metadata"), dict) else {}
    parameters = extra["invocation_params"] if isinstance(extra.get("invocation_params"), dict) else {}
    said = outputs["llm_output"] if isinstance(outputs.get("llm_output"), dict) else {}
    usage = _usage(outputs, said)
    error = run.get("error")
    return Span(
        span_id=run_id,
        trace_id=text(run.get("trace_id")) or _root(run) or run_id,
        parent_id=text(run.get("parent_run_id")) or _parent(run),
        name=str(run.get("name") or ""),
        kind=kind,
        started_at=checked_moment(run.get("start_time")),
        ended_at=checked_moment(run.get("end_time")),
        request=request,
        answers=answers,
        tools=(tools_of(run.get("inputs")) or tools_of(parameters)) if kind == "call" else None,
        model=text(
            outputs.get("model")
            or first(said, "model_name", "model")
            or metadata.get("ls_model_name")
            or first(parameters, "model", "model_name")
        ),
        num_prompt_tokens=counted(first(usage, "input_tokens", "prompt_tokens") or run.get("prompt_tokens")),
        num_reply_tokens=counted(first(usage, "output_tokens", "completion_tokens") or run.get("completion_tokens")),
        cost_usd=float(run["total_cost"]) if isinstance(run.get("total_cost"), (int, float)) else None,
        fault=fault_of(error, kind) if isinstance(error, str) and error else None,
        tool_name=text(run.get("name")) if kind == "tool" else None,
        tool_call_id=_tool_call_id(run, outputs) if kind == "tool" else None,
        tool_arguments=_arguments(run.get("inputs")) if kind == "tool" else None,
        task_id=text(run.get("reference_example_id")),
        scores=_scores(run.get("feedback_stats"), run_id),
    )


def _merged(records: Sequence[StoredRecord]) -> LoggedSpan:
    """A run out of its creation and its updates; of what several say, the one that ended last counts."""
    ordered = sorted(records, key=lambda record: (str(record.value.get("end_time") or ""), record.record_id))
    run: dict[str, Any] = {"inputs": None, "outputs": None}
    request: tuple[Sequence[dict[str, Any]], list[dict[str, Any]]] = ((), [])
    answers: tuple[Sequence[dict[str, Any]], list[dict[str, Any]]] = ((), [])
    for record in ordered:
        run.update({key: held for key, held in record.value.items() if held not in (None, {}, [])})
        span, turns = _span(record.value), record.spelled.turns
        if span.request:
            request = (span.request, turns[: len(span.request)])
        if span.answers:
            answers = (span.answers, turns[len(span.request) :])
    span = dataclasses.replace(_span(run, is_merged=True), request=request[0], answers=answers[0])
    return LoggedSpan(span=span, records=list(ordered), request=request[1], answers=answers[1])


def _usage(outputs: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    held = first(outputs, "usage_metadata", "usage") or first(said, "token_usage", "usage")
    if isinstance(held, dict):
        return held
    generations = outputs.get("generations")
    while isinstance(generations, list) and generations:
        generations = generations[0]
    message = generations.get("message") if isinstance(generations, dict) else None
    message = message.get("kwargs", message) if isinstance(message, dict) else {}
    return message["usage_metadata"] if isinstance(message.get("usage_metadata"), dict) else {}


def _root(run: dict[str, Any]) -> str | None:
    order = text(run.get("dotted_order"))
    return None if order is None else order.partition(".")[0].partition("Z")[2] or None


def _parent(run: dict[str, Any]) -> str | None:
    order = str(run.get("dotted_order") or "").split(".")
    return order[-2].partition("Z")[2] or None if len(order) > 1 else None


def _arguments(inputs: Any) -> Any:
    inputs = unpacked(inputs)
    return unpacked(inputs["input"]) if isinstance(inputs, dict) and inputs.keys() == {"input"} else inputs


def _tool_call_id(run: dict[str, Any], outputs: dict[str, Any]) -> str | None:
    output = outputs.get("output")
    message = output.get("kwargs", output) if isinstance(output, dict) else {}
    extra = run["extra"] if isinstance(run.get("extra"), dict) else {}
    return text(message.get("tool_call_id") or extra.get("tool_call_id"))


def _scores(stats: Any, run_id: str) -> list[Score]:
    """Feedback that one person or evaluator gave; of several only an average was kept, which is nobody's score."""
    found = []
    for name, held in stats.items() if isinstance(stats, dict) else ():
        if isinstance(held, dict) and held.get("n") == 1 and isinstance(held.get("avg"), (int, float)):
            found.append(Score(name=name, value=float(held["avg"]), span_id=run_id))
    return found
