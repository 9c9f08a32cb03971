"""Bodies and streams of Anthropic's Messages API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.anthropic_messages import AnthropicMessages
from pipelines.landing.format import BadRecord, SourceRecord
from pipelines.landing.head import Head
from tests.landing.formats.reading import of_text
from tests.landing.lines import attempts, line, write_lines

TOOLS = [{"name": "look", "input_schema": {"type": "object"}}]
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "seen"}]}


def message(id: str, *blocks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 1, "output_tokens": 3}
    whole = {"id": id, "type": "message", "role": "assistant", "model": "claude-x", "content": list(blocks), "usage": usage}
    return {**whole, "stop_reason": "end_turn", **changes}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def exchange(id: str, messages: list[dict[str, Any]], *blocks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    request = {"model": "claude-x", "max_tokens": 9, "system": "Mend.", "messages": messages, "tools": TOOLS}
    return {"request": request, "response": message(id, *blocks), "timestamp": f"2026-11-20T10:00:0{id}Z", **changes}


def two() -> list[dict[str, Any]]:
    ask = {"role": "user", "content": "Do it."}
    answer = [{"type": "thinking", "thinking": "hm", "signature": "s"}, text("Looking."), USE]
    sent_back = {"role": "assistant", "content": [text("Looking."), USE]}
    result = {"role": "user", "content": [RESULT, {**text("Go on."), "cache_control": {"type": "ephemeral"}}]}
    return [exchange("1", [ask], *answer), exchange("2", [ask, sent_back, result], text("Done."))]


def events() -> list[dict[str, Any]]:
    start = message("9", usage={"input_tokens": 5, "output_tokens": 1}, stop_reason=None)

    def delta(index: int, kind: str, **said: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **said}}

    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        delta(0, "thinking_delta", thinking="h"),
        delta(0, "thinking_delta", thinking="m"),
        delta(0, "signature_delta", signature="s"),
        {"type": "content_block_stop", "index": 0},
        {"type": "ping"},
        {"type": "content_block_start", "index": 1, "content_block": text("")},
        delta(1, "text_delta", text="Look"),
        delta(1, "text_delta", text="ing"),
        {"type": "content_block_start", "index": 2, "content_block": {**USE, "input": {}}},
        delta(2, "input_json_delta", partial_json=""),
        delta(2, "input_json_delta", partial_json='{"at"'),
        delta(2, "input_json_delta", partial_json=": 1}"),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 8}},
        {"type": "message_stop"},
    ]


def sse(found: list[dict[str, Any]]) -> bytes:
    return b"".join(f"event: {event['type']}\n".encode() + b"data: " + line(event) + b"\n" for event in found)


FORMAT = AnthropicMessages()
FILES = [
    line(two()[0]),
    json.dumps(two()[1], indent=2).encode(),
    json.dumps([message("1", text("a"))]).encode(),
    sse(events()),
    b"".join(line(event) for event in events()),
    line(two()[0]["request"]),
    line({"custom_id": "1", "result": {"type": "succeeded", "message": message("1", text("a"))}}),
]
FOLDERS: set[str] = set()


def test_blocks_become_turns_and_calls_are_stitched() -> None:
    (attempt,) = attempts(FORMAT, *reversed(two()))
    assert [(turn["role"], turn["content"], turn["call"]) for turn in attempt.turns] == [
        ("system", "Mend.", None),
        ("user", "Do it.", None),
        ("assistant", "Looking.", 0),
        ("tool", "seen", None),
        ("user", "Go on.", None),
        ("assistant", "Done.", 1),
    ]
    called = attempt.turns[2]
    assert called["reasoning"] == "hm" and called["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at":1}'}
    assert attempt.turns[3]["tool_call_id"] == "t1"
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.model) == (26, 6, "claude-x")
    assert attempt.tools == TOOLS and attempt.num_gaps == 0


@pytest.mark.parametrize("system", ["Mend.", [text("Mend."), {**text(""), "cache_control": {"type": "ephemeral"}}]])
def test_a_system_prompt_of_blocks_is_the_same(system: Any) -> None:
    value = two()[0]
    value["request"]["system"] = system
    (attempt,) = attempts(FORMAT, value)
    assert attempt.turns[0]["content"] == "Mend."


def test_streams_are_put_together(tmp_path: Path) -> None:
    for content in (sse(events()), b"".join(line(event) for event in events())):
        (attempt,), bad = of_text(FORMAT, tmp_path / "log", content)
        (turn,) = attempt.turns
        assert not bad and (turn["content"], turn["reasoning"], turn["finish_reason"]) == ("Looking", "hm", "tool_use")
        assert turn["tool_calls"][0]["function"]["arguments"] == '{"at":1}'
        assert (attempt.num_prompt_tokens, attempt.num_reply_tokens) == (5, 8)
    wrapped = {**two()[0], "response": sse(events()).decode()}
    (attempt,) = attempts(FORMAT, wrapped)
    assert [turn["role"] for turn in attempt.turns] == ["system", "user", "assistant"]


def test_a_stream_that_was_cut_off_is_a_fault(tmp_path: Path) -> None:
    (cut,), bad = of_text(FORMAT, tmp_path / "log", sse([event for event in events() if event["type"] != "message_delta"]))
    assert not bad and cut.fault == "aborted"
    (whole,), _ = of_text(FORMAT, tmp_path / "log", sse(events()))
    assert whole.fault is None


def test_a_stream_that_grew_is_superseded_and_a_second_one_stays_apart(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values, read_to = [], 0
    for number in (9, len(events())):
        path.write_bytes(sse(events()[:number]))
        (piece,) = FORMAT.split(path, read_to)  # as landing reads on
        assert isinstance(piece, SourceRecord)
        values.append(piece.value)
        read_to = piece.byte_end
    (attempt,) = attempts(FORMAT, *values)
    assert attempt.turns[0]["content"] == "Looking"
    path.write_bytes(sse(events()) + sse(events()[:1]).replace(b'"9"', b'"8"') + sse(events()[7:9]))
    assert [piece.line for piece in FORMAT.split(path)] == [2, 2 + 3 * len(events())]


def test_what_the_vendors_own_tools_said_is_not_sampled() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result", "url": "u"}]}
    ask = {"role": "user", "content": "Do it."}
    blocks = [text("Let me see."), search, found, text("It is so.")]
    first = exchange("1", [ask], *blocks)
    second = exchange("2", [ask, {"role": "assistant", "content": blocks}, ask], text("Done."))
    (attempt,) = attempts(FORMAT, first, second)
    assert [(turn["role"], turn["call"]) for turn in attempt.turns] == [
        ("system", None),
        ("user", None),
        ("assistant", 0),
        ("tool", None),
        ("assistant", 0),
        ("user", None),
        ("assistant", 1),
    ]
    assert attempt.num_gaps == 0 and attempt.turns[2]["tool_calls"][0]["function"]["name"] == "web_search"


def test_an_error_is_a_fault() -> None:
    value = {**two()[0], "response": {"type": "error", "error": {"type": "overloaded_error"}}}
    (attempt,) = attempts(FORMAT, value)
    assert (attempt.fault, attempt.num_sampled_turns) == ("model_error", 0)


def test_a_session_in_the_users_id_bundles(tmp_path: Path) -> None:
    value = two()[0]
    value["request"]["metadata"] = {"user_id": "user_a_account_b_session_c"}
    (piece,) = FORMAT.split(write_lines(tmp_path / "log", [value]))
    assert isinstance(piece, SourceRecord) and piece.bundle_ref == "conversation:c"


@pytest.mark.parametrize(
    "changes",
    [{"response": {"content": 5}}, {"request": {"messages": [{"role": "user", "content": 5}]}}, {"request": {"messages": ["x"]}}],
)
def test_other_shapes_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    *_, bad = FORMAT.split(write_lines(tmp_path / "log", [two()[0], {**two()[0], **changes}]))
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape"


def test_an_item_of_the_responses_api_is_no_message(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log", [{"type": "message", "role": "assistant", "content": [text("a")]}])
    assert not FORMAT.detect(Head(path))
