"""OTLP/JSON traces."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.landing import registry
from pipelines.landing.format import Attempt, BadRecord, SourceRecord, Unfinished
from pipelines.landing.otlp_genai import OtlpGenai
from tests.landing.lines import attempts, stored

LOOK_UP = {"type": "tool_call", "id": "call_1", "name": "look_up", "arguments": {"order": 7}}
FOUND = {"type": "tool_call_response", "id": "call_1", "result": {"state": "sent"}}
ASKED = {"role": "user", "parts": [{"type": "text", "content": "Where is 7?"}]}
CALLED = {
    "role": "assistant",
    "parts": [{"type": "reasoning", "content": "look"}, {"type": "text", "content": "Let me see."}, LOOK_UP],
}
ANSWERED = {"role": "assistant", "parts": [{"type": "text", "content": "It was sent."}], "finish_reason": "stop"}


def span(
    number: int, attributes: dict[str, Any], *, parent: int | None = None, at: int | None = None, **changes: Any
) -> dict[str, Any]:
    """A span that starts at second `at` (its number unless said) and ends much later than those inside it."""
    start = 1_792_489_224_000_000_000 + (number if at is None else at) * 1_000_000_000
    listed = [
        {
            "key": key,
            "value": {"intValue": str(value)}
            if isinstance(value, int)
            else {"stringValue": value if isinstance(value, str) else json.dumps(value)},
        }
        for key, value in attributes.items()
    ]
    return {
        "traceId": "aa",
        "spanId": f"s{number}",
        **({} if parent is None else {"parentSpanId": f"s{parent}"}),
        "name": f"span {number}",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 500_000_000),
        "attributes": listed,
        "status": {},
        **changes,
    }


def chat(number: int, request: list[Any], answer: Any, **changes: Any) -> dict[str, Any]:
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-1",
        "gen_ai.system_instructions": [{"type": "text", "content": "Help."}],
        "gen_ai.input.messages": request,
        **({"gen_ai.output.messages": [answer]} if answer is not None else {}),
        "gen_ai.tool.definitions": [{"type": "function", "name": "look_up", "parameters": {"type": "object"}}],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
    }
    return span(number, said, **changes)


def request(*spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "desk"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "sdk"}, "spans": list(spans)}]}]}


TOOL = span(
    3, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look_up", "gen_ai.tool.call.id": "call_1"}, parent=1
)
TRACE = [
    chat(2, [ASKED], CALLED, parent=1),
    TOOL,
    chat(4, [ASKED, CALLED, {"role": "user", "parts": [FOUND]}], ANSWERED, parent=1),
    span(1, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"}),
]
FORMAT = OtlpGenai()
FILES = [
    json.dumps(request(*TRACE)).encode(),
    json.dumps(request(*TRACE), indent=2).encode(),
    json.dumps([request(*TRACE)]).encode(),
    json.dumps(request(*TRACE)).encode() + b"\n" + json.dumps(request(TOOL)).encode() + b"\n",
    b'{"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [{"traceId": "aa",',
]
FOLDERS = {"otel_genai_otlp", "openinference_spans"}


def read(path: Path, content: Any) -> list[Any]:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return list(FORMAT.split(path))


def attempts_of(*spans: dict[str, Any]) -> list[Attempt]:
    return attempts(
        FORMAT, *({"resource": request()["resourceSpans"][0]["resource"], "scope": None, "span": one} for one in spans)
    )


def test_calls_of_an_agent_are_one_attempt_with_the_calls_in_their_parts() -> None:
    (attempt,) = attempts_of(*TRACE)
    assert [(turn["role"], turn["sampled"], turn["content"]) for turn in attempt.turns] == [
        ("system", False, "Help."),
        ("user", False, "Where is 7?"),
        ("assistant", True, "Let me see."),
        ("tool", False, '{"state":"sent"}'),
        ("assistant", True, "It was sent."),
    ]
    (call,) = attempt.turns[2]["tool_calls"]
    assert (call["id"], call["function"]) == ("call_1", {"name": "look_up", "arguments": '{"order":7}'})
    assert attempt.turns[2]["reasoning"] == "look" and attempt.turns[3]["tool_call_id"] == "call_1"
    assert (attempt.harness, attempt.model, attempt.num_gaps) == ("desk", "m-1", 0)
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens) == (20, 6)
    assert attempt.calls[1]["finish_reason"] == "stop" and attempt.tools is not None
    assert attempt.tools[0]["function"]["name"] == "look_up"


@given(st.permutations(TRACE))
def test_the_order_of_spans_does_not_matter(spans: list[dict[str, Any]]) -> None:
    (attempt,) = attempts_of(*spans)
    assert len(attempt.calls) == 2 and attempt.ref == "s2/0"


def test_an_agent_below_a_tool_call_is_a_subagent() -> None:
    inner = span(5, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "finder"}, parent=3)
    found = chat(6, [{"role": "user", "parts": [{"type": "text", "content": "Find 7."}]}], ANSWERED, parent=5, at=3)
    desk, finder = attempts_of(*TRACE, inner, found)
    assert (finder.link, finder.parent_ref, finder.parent_tool_call_id) == ("subagent", desk.ref, "call_1")
    assert (desk.link, len(desk.calls), len(finder.calls)) == (None, 2, 1)


def test_a_tool_that_asks_a_model_itself_is_a_subagent() -> None:
    inner = chat(6, [{"role": "user", "parts": [{"type": "text", "content": "Shorten."}]}], ANSWERED, parent=3, at=3)
    desk, tool = attempts_of(*TRACE, inner)
    assert (tool.link, tool.parent_ref, tool.parent_tool_call_id) == ("subagent", desk.ref, "call_1")


def test_choices_are_attempts_side_by_side_whose_usage_cannot_be_told_apart() -> None:
    one = chat(2, [ASKED], ANSWERED)
    for attribute in one["attributes"]:
        if attribute["key"] == "gen_ai.output.messages":
            attribute["value"]["stringValue"] = json.dumps([CALLED, ANSWERED])
    found = attempts_of(one)
    assert [(attempt.num_sampled_turns, attempt.num_prompt_tokens, attempt.num_reply_tokens) for attempt in found] == [
        (1, 10, None),
        (1, 10, None),
    ]


def test_a_failed_call_is_a_fault_and_no_turn() -> None:
    failed = chat(2, [ASKED], None, status={"code": 2, "message": "overloaded"})
    (attempt,) = attempts_of(failed)
    assert (attempt.fault, attempt.num_sampled_turns) == ("model_error", 0)
    (cancelled,) = attempts_of(chat(2, [ASKED], None, status={"code": 2, "message": "CancelledError"}))
    assert cancelled.fault == "aborted"


def test_a_fault_of_the_agent_ends_its_attempt() -> None:
    agent = span(1, {"gen_ai.operation.name": "invoke_agent"}, status={"code": 2, "message": "KeyError"})
    (attempt,) = attempts_of(*TRACE[:3], agent)
    assert attempt.fault == "harness_error"


def test_a_call_without_messages_is_refused_and_makes_no_empty_attempt(tmp_path: Path) -> None:
    silent = span(2, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})
    (bad,) = read(tmp_path / "t.json", request(silent))
    assert isinstance(bad, BadRecord) and "neither input nor output" in bad.detail and "CAPTURE_MESSAGE_CONTENT" in bad.detail


def test_a_call_whose_messages_were_cut_is_refused(tmp_path: Path) -> None:
    whole = chat(2, [ASKED], CALLED)
    for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
        cut = json.loads(json.dumps(whole))
        held = next(item for item in cut["attributes"] if item["key"] == name)["value"]
        held["stringValue"] = held["stringValue"][:30]
        (bad,) = read(tmp_path / "t.json", request(cut))
        assert isinstance(bad, BadRecord) and "cut" in bad.detail


OPEN_INFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "m",
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "hi",
    "llm.input_messages.1.message.role": "assistant",
    "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
    "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "f",
    "llm.input_messages.1.message.tool_calls.0.tool_call.function.arguments": '{"a": 1}',
    "llm.input_messages.2.message.role": "tool",
    "llm.input_messages.2.message.tool_call_id": "c1",
    "llm.input_messages.2.message.content": "x",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.contents.0.message_content.type": "text",
    "llm.output_messages.0.message.contents.0.message_content.text": "done",
    "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "f"}}',
}
NUMBERED = {
    "llm.request.type": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": "hi",
    "gen_ai.prompt.1.role": "assistant",
    "gen_ai.prompt.1.tool_calls.0.id": "c1",
    "gen_ai.prompt.1.tool_calls.0.name": "f",
    "gen_ai.prompt.1.tool_calls.0.arguments": '{"a": 1}',
    "gen_ai.prompt.2.role": "tool",
    "gen_ai.prompt.2.tool_call_id": "c1",
    "gen_ai.prompt.2.content": "x",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "done",
    "gen_ai.completion.0.finish_reason": "stop",
    "llm.request.functions.0.name": "f",
}
EVENTED = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.tool.definitions": [{"name": "f"}],
    "events": [
        {"event.name": "gen_ai.user.message", "role": "user", "content": "hi"},
        {
            "event.name": "gen_ai.assistant.message",
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
        },
        {"event.name": "gen_ai.tool.message", "role": "tool", "id": "c1", "content": "x"},
        {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": "done"}},
    ],
}
VERCEL = {
    "ai.operationId": "ai.generateText.doGenerate",
    "ai.model.id": "m",
    "ai.prompt.messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c1", "toolName": "f", "input": {"a": 1}}]},
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "f", "output": {"type": "text", "value": "x"}}],
        },
    ],
    "ai.prompt.tools": [json.dumps({"type": "function", "name": "f", "inputSchema": {}})],
    "ai.response.text": "done",
    "ai.response.finishReason": "stop",
}


@pytest.mark.parametrize(
    "attributes", [OPEN_INFERENCE, NUMBERED, EVENTED, VERCEL], ids=["openinference", "numbered", "events", "vercel"]
)
def test_every_convention_says_the_same(attributes: dict[str, Any]) -> None:
    (attempt,) = attempts_of(span(1, attributes))
    assert [(turn["role"], turn["content"]) for turn in attempt.turns] == [
        ("user", "hi"),
        ("assistant", None),
        ("tool", "x"),
        ("assistant", "done"),
    ]
    (call,) = attempt.turns[1]["tool_calls"]
    assert (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) == ("c1", "f", {"a": 1})
    assert attempt.turns[2]["tool_call_id"] == "c1" and attempt.model == "m" and attempt.num_gaps == 1
    assert attempt.tools is not None and attempt.tools[0]["function"]["name"] == "f"


def test_messages_as_events_of_the_span_are_read() -> None:
    def event(name: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in body.items()]}

    events = [
        event("gen_ai.system.message", {"content": "Help."}),
        event("gen_ai.user.message", {"content": "hi"}),
        event("gen_ai.choice", {"finish_reason": "stop", "message": '{"role": "assistant", "content": "done"}'}),
    ]
    (attempt,) = attempts_of(span(1, {"gen_ai.operation.name": "chat"}, events=events))
    assert [(turn["role"], turn["content"]) for turn in attempt.turns] == [
        ("system", "Help."),
        ("user", "hi"),
        ("assistant", "done"),
    ]
    assert attempt.calls[0]["finish_reason"] == "stop"


def test_a_span_that_was_sent_twice_counts_once_in_its_later_state() -> None:
    early = chat(2, [ASKED], None, parent=1, endTimeUnixNano="0")
    (attempt,) = attempts_of(early, *TRACE)
    bundle = FORMAT.attempts(stored(FORMAT, *({"resource": None, "scope": None, "span": one} for one in (early, *TRACE))))
    assert len(attempt.calls) == 2 and bundle.left["rec-0"] == ("s2/0", "superseded")


def test_records_are_the_bytes_of_their_spans(tmp_path: Path) -> None:
    for content in FILES[:4]:
        pieces = read(tmp_path / "t.json", content)
        for piece in pieces:
            assert isinstance(piece, SourceRecord)
            assert json.loads(content[piece.byte_start : piece.byte_end]) == piece.value["span"]
            assert content.count(b"\n", 0, piece.byte_start) + 1 == piece.line
        assert [piece.value["span"]["spanId"] for piece in pieces[:4]] == ["s2", "s3", "s4", "s1"]
        for number, piece in enumerate(pieces, 1):
            assert list(FORMAT.split(tmp_path / "t.json", piece.byte_end, piece.line)) == pieces[number:]


def test_torn_lines_cost_themselves_only(tmp_path: Path) -> None:
    whole = json.dumps(request(TOOL)).encode()
    first, torn, second = read(tmp_path / "t.jsonl", whole + b"\n" + whole[:90] + whole + b"\n")
    assert isinstance(first, SourceRecord) and isinstance(torn, BadRecord) and isinstance(second, SourceRecord)
    assert (torn.line, torn.reason, second.line, second.value) == (2, "bad_json", 2, first.value)
    *_, waiting = read(tmp_path / "u.jsonl", whole + b"\n" + whole[:90])
    assert isinstance(waiting, Unfinished) and waiting.byte_start == len(whole) + 1
    (cut,) = read(tmp_path / "v.json", json.dumps(request(TOOL), indent=1).encode()[:-20])
    assert isinstance(cut, Unfinished)


@pytest.mark.parametrize(
    "changes",
    [{"spanId": None}, {"traceId": 7}, {"startTimeUnixNano": "noon"}, {"startTimeUnixNano": {"a": 1}}, {"endTimeUnixNano": True}],
)
def test_a_span_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    bad, good = read(tmp_path / "t.json", request({**TOOL, **changes}, TRACE[0]))
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape" and isinstance(good, SourceRecord)


@pytest.mark.parametrize(
    "changes", [{"attributes": None}, {"events": None}, {"status": None}, {"events": [1]}, {"name": None}, {"parentSpanId": ""}]
)
def test_what_is_missing_is_no_reason_to_refuse(tmp_path: Path, changes: dict[str, Any]) -> None:
    (piece,) = read(tmp_path / "t.json", request({**TOOL, **changes}))
    assert isinstance(piece, SourceRecord)
    assert FORMAT.attempts(stored(FORMAT, piece.value)).attempts == []


def test_the_real_files(shared_logs: Path) -> None:
    counts: dict[str, list[int]] = {}
    links: list[tuple[str | None, str | None]] = []
    for folder in sorted(FOLDERS):
        for path in sorted((shared_logs / folder).rglob("*.json")):
            assert registry.detect(path) is not None
            bundles: dict[str | None, list[Any]] = defaultdict(list)
            for piece in FORMAT.split(path):
                assert isinstance(piece, SourceRecord) and piece.skip_reason is None
                bundles[piece.bundle_ref].append(piece.value)
            found = [attempt for values in bundles.values() for attempt in attempts(FORMAT, *values)]
            assert all(attempt.num_gaps == 0 and attempt.num_sampled_turns for attempt in found)
            links += [(attempt.link, attempt.parent_tool_call_id) for attempt in found if attempt.link]
            counts[path.stem] = [sum(map(len, bundles.values())), len(found), sum(attempt.num_sampled_turns for attempt in found)]
    assert counts == {
        "openai_agents_0.24.0_oi_2.5.3_as_tool": [12, 2, 3],
        "pydantic_ai_2.58.0": [7, 2, 3],
        "pydantic_ai_2.58.0_delegation": [6, 2, 3],
        "test-traces": [2, 0, 0],
    }
    assert links == [("subagent", "call_ask_1")] * 2
