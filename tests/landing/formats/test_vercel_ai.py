"""Vercel AI SDK spans."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing import registry
from pipelines.landing.format import BadRecord, SourceRecord
from pipelines.landing.vercel_ai import VercelAi
from tests.landing.lines import attempts

CALL = {"toolCallId": "c1", "toolName": "look_up", "input": '{"order":7}'}
USER = {"role": "user", "content": [{"type": "text", "text": "Where is 7?"}]}
CALLED = {
    "role": "assistant",
    "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "look_up", "input": {"order": 7}}],
}
RESULT = {
    "role": "tool",
    "content": [
        {"type": "tool-result", "toolCallId": "c1", "toolName": "look_up", "output": {"type": "json", "value": {"state": "sent"}}}
    ],
}


def span(number: int, operation: str, attributes: dict[str, Any], *, parent: int | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "name": operation,
        "spanContext": {"traceId": "aa", "spanId": f"s{number}"},
        **({} if parent is None else {"parentSpanContext": {"traceId": "aa", "spanId": f"s{parent}"}}),
        "attributes": {"ai.operationId": operation, "ai.telemetry.functionId": "desk", "ai.model.id": "m", **attributes},
        "status": {"code": 0},
        "startTime": [1763632800 + number, 250_000_000],
        "endTime": [1763632800 + number, 750_000_000],
        "events": [],
        **changes,
    }


def call(number: int, request: list[Any], **answer: Any) -> dict[str, Any]:
    said = {"ai.prompt.messages": json.dumps(request), "ai.usage.promptTokens": 9, "ai.usage.completionTokens": 2}
    said |= {f"ai.response.{key}": value for key, value in answer.items()}
    return span(number, "ai.generateText.doGenerate", said, parent=1)


TRACE = [
    call(2, [USER], toolCalls=json.dumps([CALL]), finishReason="tool-calls"),
    span(3, "ai.toolCall", {"ai.toolCall.name": "look_up", "ai.toolCall.id": "c1"}, parent=1),
    call(4, [USER, CALLED, RESULT], text="It was sent.", finishReason="stop", model="m-1"),
    span(1, "ai.generateText", {"ai.prompt": '{"prompt": "Where is 7?"}', "ai.response.text": "It was sent."}),
]
FORMAT = VercelAi()
FILES = [
    json.dumps(TRACE).encode(),
    json.dumps(TRACE, indent=2).encode(),
    b"".join(json.dumps(one).encode() + b"\n" for one in TRACE),
]
FOLDERS = {"otel_vercel_ai_spans"}


def test_the_steps_of_one_call_of_the_sdk_are_one_attempt() -> None:
    for spans in (TRACE, TRACE[::-1]):
        (attempt,) = attempts(FORMAT, *spans)
        assert [(turn["role"], turn["content"], turn["sampled"]) for turn in attempt.turns] == [
            ("user", "Where is 7?", False),
            ("assistant", None, True),
            ("tool", '{"state":"sent"}', False),
            ("assistant", "It was sent.", True),
        ]
        assert attempt.turns[1]["tool_calls"][0]["id"] == attempt.turns[2]["tool_call_id"] == "c1"
        assert [entry["finish_reason"] for entry in attempt.calls] == ["tool-calls", "stop"]
        assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.model) == (18, 4, None)  # two models


def test_a_call_inside_a_tool_is_a_subagent() -> None:
    inner = span(5, "ai.generateText", {"ai.telemetry.functionId": "finder"}, parent=3)
    found = {**call(6, [USER], text="found"), "parentSpanContext": {"spanId": "s5"}, "startTime": [1763632803, 0]}
    desk, finder = attempts(FORMAT, *TRACE, inner, found)
    assert (desk.link, finder.link, finder.parent_ref, finder.parent_tool_call_id) == (None, "subagent", desk.ref, "c1")


def test_recording_switched_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spans.json"
    path.write_text(json.dumps([span(2, "ai.streamText.doStream", {})]), encoding="utf-8")
    (bad,) = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and "recordInputs" in bad.detail


@pytest.mark.parametrize("changes", [{"attributes": None}, {"spanContext": {}}, {"startTime": ["a", 1]}, {"endTime": {"a": 1}}])
def test_a_span_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "spans.json"
    path.write_text(json.dumps([{**TRACE[0], **changes}, TRACE[2]]), encoding="utf-8")
    bad, good = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape" and isinstance(good, SourceRecord)


def test_the_real_files(shared_logs: Path) -> None:
    found: dict[str, list[Any]] = {}
    for path in sorted((shared_logs / "otel_vercel_ai_spans").glob("*.json")):
        assert registry.detect(path) is not None
        bundles: dict[str | None, list[Any]] = defaultdict(list)
        for piece in FORMAT.split(path):
            assert isinstance(piece, SourceRecord) and piece.skip_reason is None
            bundles[piece.bundle_ref].append(piece.value)
        made = [attempt for values in bundles.values() for attempt in attempts(FORMAT, *values)]
        assert all(attempt.num_sampled_turns == 1 and attempt.num_prompt_tokens and attempt.started_at for attempt in made)
        found[path.stem] = [len(bundles), len(made), sum(attempt.num_gaps for attempt in made)]
    # of ten spans four are calls; the others repeat them in traces of their own, or embed
    assert found == {"ai-generateText-doGenerate": [2, 2, 1], "all-spans": [10, 4, 1]}
