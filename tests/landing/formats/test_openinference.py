"""OpenInference spans as JSON objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import BadRecord, SourceRecord
from pipelines.landing.openinference import OpenInference
from tests.landing.lines import attempts


def span(number: int, kind: str, attributes: dict[str, Any], *, parent: int | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "name": f"span {number}",
        "context": {"trace_id": "0xaa", "span_id": f"0x{number}"},
        "parent_id": None if parent is None else f"0x{parent}",
        "start_time": f"2026-11-20T10:00:0{number}Z",
        "end_time": f"2026-11-20T10:00:0{number}.5Z",
        "status_code": "OK",
        "attributes": {"openinference.span.kind": kind, **attributes},
        "events": [],
        **changes,
    }


def chat(number: int, request: list[tuple[str, str]], answer: str, **changes: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"llm.model_name": "m", "llm.token_count.prompt": 5, "llm.token_count.completion": 2}
    for place, (role, content) in enumerate(request):
        said |= {f"llm.input_messages.{place}.message.role": role, f"llm.input_messages.{place}.message.content": content}
    said |= {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": answer}
    return span(number, "LLM", said, **changes)


TRACE = [
    chat(2, [("user", "hi")], "hello", parent=1),
    chat(3, [("user", "hi"), ("assistant", "hello"), ("user", "bye")], "bye", parent=1),
    span(1, "AGENT", {"input.value": "hi", "output.value": "bye"}),
]
NESTED = {
    "id": "U3Bhbjox",
    "name": "llm",
    "span_kind": "LLM",
    "context": {"trace_id": "aa", "span_id": "2"},
    "parent_id": None,
    "start_time": "2026-11-20T10:00:02+00:00",
    "end_time": "2026-11-20T10:00:03+00:00",
    "status_code": "OK",
    "status_message": "",
    "attributes": {
        "llm": {
            "model_name": "m",
            "input_messages": [{"message": {"role": "user", "content": "hi"}}],
            "output_messages": [{"message": {"role": "assistant", "content": "hello"}}],
        }
    },
}
COLUMNS = {
    "name": "llm",
    "span_kind": "LLM",
    "context.trace_id": "aa",
    "context.span_id": "2",
    "start_time": 1763632802000,
    "attributes.llm.model_name": "m",
    "attributes.llm.input_messages": [{"message.role": "user", "message.content": "hi"}],
    "attributes.llm.output_messages": [{"message.role": "assistant", "message.content": "hello"}],
}
FORMAT = OpenInference()
FILES = [
    json.dumps(TRACE).encode(),
    json.dumps(TRACE, indent=2).encode(),
    b"".join(json.dumps(one).encode() + b"\n" for one in TRACE),
    json.dumps({"data": [NESTED], "next_cursor": None}).encode(),
    json.dumps(COLUMNS).encode() + b"\n",
]
FOLDERS = {"openinference_spans"}


def test_calls_of_an_agent_are_one_attempt_whatever_their_order() -> None:
    for spans in (TRACE, TRACE[::-1]):
        (attempt,) = attempts(FORMAT, *spans)
        assert [(turn["role"], turn["content"], turn["sampled"]) for turn in attempt.turns] == [
            ("user", "hi", False),
            ("assistant", "hello", True),
            ("user", "bye", False),
            ("assistant", "bye", True),
        ]
        assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens) == ("m", 10, 4)
        assert attempt.started_at is not None and attempt.started_at.second == 2


@pytest.mark.parametrize("value", [NESTED, COLUMNS], ids=["nested", "columns"])
def test_nested_attributes_and_columns_say_the_same(value: dict[str, Any]) -> None:
    (attempt,) = attempts(FORMAT, value)
    assert [(turn["role"], turn["content"]) for turn in attempt.turns] == [("user", "hi"), ("assistant", "hello")]
    assert attempt.model == "m" and attempt.started_at is not None


def test_every_form_of_file_gives_its_spans(tmp_path: Path) -> None:
    path = tmp_path / "spans"
    for content in FILES:
        path.write_bytes(content)
        for piece in FORMAT.split(path):
            assert isinstance(piece, SourceRecord) and piece.bundle_ref == "aa"
            assert json.loads(content[piece.byte_start : piece.byte_end]) == piece.value


def test_a_hidden_call_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spans.json"
    path.write_text(json.dumps([span(1, "LLM", {"llm.model_name": "m"})]), encoding="utf-8")
    (bad,) = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and "HIDE_INPUTS" in bad.detail


@pytest.mark.parametrize("changes", [{"context": None}, {"context": {"trace_id": 1, "span_id": "2"}}, {"start_time": "noon"}])
def test_a_span_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "spans.json"
    path.write_text(json.dumps([{**TRACE[0], **changes}, TRACE[1]]), encoding="utf-8")
    bad, good = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape" and isinstance(good, SourceRecord)


def test_an_error_without_answer_is_a_fault() -> None:
    failed = span(
        2, "LLM", {"llm.input_messages.0.message.content": "hi"}, status_code="ERROR", status_message="Request timed out."
    )
    (attempt,) = attempts(FORMAT, failed)
    assert (attempt.fault, attempt.num_sampled_turns) == ("timeout", 0)
