"""Recorded HTTP traffic."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from pipelines.landing.format import BadRecord, SourceRecord, Unfinished
from pipelines.landing.vcr_cassette import VcrCassette
from tests.landing.formats.chat_lines import ASK, conversation
from tests.landing.formats.reading import of_text, read
from tests.landing.formats.test_anthropic_messages import events, sse
from tests.landing.formats.test_openai_stream import sse as chat_sse
from tests.landing.formats.test_openai_stream import stream
from tests.landing.lines import attempts

FORMAT = VcrCassette()


def interaction(request: Any, response: Any, path: str = "/v1/chat/completions", **changes: Any) -> dict[str, Any]:
    headers = {"Date": ["Fri, 20 Nov 2026 10:00:00 GMT"], "Set-Cookie": "secret-cookie"}
    return {
        "request": {
            "body": request if isinstance(request, str) or request is None else json.dumps(request),
            "headers": {"authorization": ["Bearer secret-key"]},
            "method": "POST",
            "uri": f"https://api.example{path}",
        },
        "response": {
            "body": {"string": response if isinstance(response, str | bytes) else json.dumps(response, indent=2)},
            "headers": headers,
            "status": {"code": 200, "message": "OK"},
            **changes,
        },
    }


def of_calls(*texts: str) -> list[dict[str, Any]]:
    return [interaction(call["request"], call["response"]) for call in conversation(*texts)]


def cassette(*interactions: dict[str, Any]) -> str:
    return yaml.safe_dump({"interactions": list(interactions), "version": 1}, allow_unicode=True)


FILES = [
    cassette(*of_calls("a")).encode(),
    json.dumps({"version": 1, "interactions": of_calls("a")}).encode(),
    b"---\n" + cassette(*of_calls("a", "b")).encode(),
]
FOLDERS = {"openai_chat_logs"}


def test_calls_are_read_and_stitched_from_both_layouts(tmp_path: Path) -> None:
    found = of_calls("a", "ü\u2028", "c")
    for content in (cassette(*found), json.dumps({"interactions": found}, indent=1)):
        (attempt,), bad = of_text(FORMAT, tmp_path / "log", content)
        assert not bad and [turn["content"] for turn in attempt.turns if turn["sampled"]] == ["a", "ü\u2028", "c"]
        assert attempt.ended_at is not None and attempt.ended_at.isoformat() == "2026-11-20T10:00:00+00:00"


def test_no_header_is_kept_and_places_are_right(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(cassette(*of_calls("ü", "b")), encoding="utf-8")
    raw = path.read_bytes()
    for piece in FORMAT.split(path):
        assert isinstance(piece, SourceRecord)
        assert "secret" not in json.dumps(piece.value)
        assert raw[piece.byte_start :].startswith(b"request:") and raw.count(b"\n", 0, piece.byte_start) == piece.line - 1
        assert b"code: 200" in raw[piece.byte_start : piece.byte_end]


def test_bodies_in_every_packing() -> None:
    (call,) = conversation("a")
    body = json.dumps(call["response"]).encode()
    for response in (body, gzip.compress(body)):
        value = next(iter(_values(interaction(call["request"], response))))
        assert attempts(FORMAT, value)[0].turns[-1]["content"] == "a"
    parsed = {**interaction(None, ""), "response": {"parsed_body": call["response"], "status": {"code": 200}}}
    parsed["request"] = {"method": "POST", "uri": "x", "parsed_body": call["request"]}
    assert attempts(FORMAT, *_values(parsed))[0].turns[-1]["content"] == "a"


def test_whose_api_it_was_is_told_by_the_bodies() -> None:
    claude = {"model": "claude-x", "max_tokens": 5, "messages": [ASK]}
    (value,) = _values(interaction(claude, sse(events()).decode(), "/v1/messages"))
    assert attempts(FORMAT, value)[0].turns[-1]["reasoning"] == "hm"
    (value,) = _values(interaction({"model": "m", "messages": [ASK], "stream": True}, chat_sse(stream("1")).decode()))
    assert attempts(FORMAT, value)[0].turns[-1]["content"] == "Looking"
    response = {"id": "r", "object": "response", "output": [{"type": "message", "role": "assistant", "content": "a"}]}
    (value,) = _values(interaction({"model": "m", "input": "Do it."}, response, "/v1/responses"))
    assert [turn["content"] for turn in attempts(FORMAT, value)[0].turns] == ["Do it.", "a"]


def test_other_traffic_is_skipped_and_errors_are_faults(tmp_path: Path) -> None:
    path = tmp_path / "log"
    other = interaction({"model": "m", "input": "text"}, {"data": []}, "/v1/embeddings")
    failed = interaction({"messages": [ASK]}, {"error": {}}, status={"code": 429, "message": "Too many"})
    path.write_text(cassette(other, failed, {"request": None, "response": None}))
    skipped, call, bad = FORMAT.split(path)
    assert isinstance(skipped, SourceRecord) and skipped.skip_reason == "meta"
    assert isinstance(call, SourceRecord) and attempts(FORMAT, call.value)[0].fault == "model_error"
    assert isinstance(bad, BadRecord)
    path.write_text("interactions:\n- request: {uri: [}\n")
    (cut,) = FORMAT.split(path)
    assert isinstance(cut, Unfinished) and isinstance(cut.at_rest, BadRecord) and "no YAML" in cut.at_rest.detail


def _values(*interactions: dict[str, Any]) -> list[Any]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text(cassette(*interactions), encoding="utf-8")
        return [piece.value for piece in FORMAT.split(path) if isinstance(piece, SourceRecord)]


def test_real_files_are_read(shared_logs: Path) -> None:
    folder = shared_logs / "openai_chat_logs"
    (attempt,), bad = read(FORMAT, folder / "test_chat_completion_tool_calls_with_content.yaml")
    assert not bad and [turn["role"] for turn in attempt.turns] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert (attempt.num_sampled_turns, attempt.num_gaps) == (2, 0) and attempt.tools is not None
    (streamed,), _ = read(FORMAT, folder / "test_chat_completion_multiple_tools_streaming_with_content.yaml")
    calls = streamed.turns[-1]["tool_calls"]
    assert [json.loads(call["function"]["arguments"])["location"] for call in calls] == ["Seattle, WA", "San Francisco, CA"]
    assert streamed.num_prompt_tokens == 75
