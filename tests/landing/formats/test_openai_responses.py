"""Responses, their items, and conversations that only name what they go on from."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import BadRecord, SourceRecord
from pipelines.landing.openai_responses import OpenAIResponses
from tests.landing.formats.chat_lines import without_records
from tests.landing.formats.reading import of_text, read
from tests.landing.lines import attempts, line, write_lines

FORMAT = OpenAIResponses()


def text(said: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said, "annotations": []}]}


def call(id: str = "t1") -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc-{id}", "call_id": id, "name": "look", "arguments": '{"at":1}'}


def output(id: str = "t1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": "seen"}


THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}


def response(id: str, *items: dict[str, Any], at: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "id": id,
        "object": "response",
        "created_at": 1_790_000_000 + at,
        "status": "completed",
        "model": "m",
        "output": list(items),
        "instructions": "Mend.",
        "tools": [{"type": "function", "name": "look"}],
        "usage": {"input_tokens": 5, "output_tokens": 2},
        **changes,
    }


def logged(id: str, asked: Any, *items: dict[str, Any], at: int = 0, **request: Any) -> dict[str, Any]:
    return {
        "request": {"model": "m", "instructions": "Mend.", "input": asked, **request},
        "response": response(id, *items, at=at),
    }


def chained() -> list[dict[str, Any]]:
    return [
        logged("r1", "Do it.", THOUGHT, text("Looking."), call("t1"), call("t2")),
        logged("r2", [output("t1"), output("t2")], text("Half."), at=1, previous_response_id="r1"),
        logged("r3", [{"role": "user", "content": "Go on."}], text("Done."), at=2, previous_response_id="r2"),
    ]


def stream() -> bytes:
    begun = {**response("r1"), "output": [], "status": "in_progress"}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.done", "item": text("a")},
        {"type": "response.completed", "response": response("r1", text("a"))},
    ]
    return b"".join(f"event: {event['type']}\n".encode() + b"data: " + line(event) + b"\n" for event in events)


FILES = [
    line(chained()[0]),
    json.dumps(response("r1", text("a")), indent=2).encode(),
    json.dumps([response("r1", text("a"))]).encode(),
    stream(),
]
FOLDERS = {"openai_chat_logs"}
TURNS = [
    ("system", "Mend.", None),
    ("user", "Do it.", None),
    ("assistant", "Looking.", 0),
    ("tool", "seen", None),
    ("tool", "seen", None),
    ("assistant", "Half.", 1),
    ("user", "Go on.", None),
    ("assistant", "Done.", 2),
]


def test_a_conversation_is_put_together_from_what_its_requests_name(tmp_path: Path) -> None:
    (attempt,), _ = read(FORMAT, *[write_lines(tmp_path / str(n), [value]) for n, value in enumerate(chained())])
    assert [(turn["role"], turn["content"], turn["call"]) for turn in attempt.turns] == TURNS
    assert attempt.turns[2]["reasoning"] == "hm" and len(attempt.turns[2]["tool_calls"]) == 2
    assert (attempt.num_gaps, attempt.num_prompt_tokens, attempt.num_reply_tokens) == (0, 15, 6)
    values = chained()
    for seed in range(5):
        random.Random(seed).shuffle(values)
        assert without_records(attempts(FORMAT, *values)) == without_records([attempt])


def test_whole_prompts_say_the_same() -> None:
    first, second, third = chained()
    whole: list[Any] = [{"role": "user", "content": "Do it."}, *first["response"]["output"]]
    second = logged("r2", [*whole, output("t1"), output("t2")], text("Half."), at=1)
    whole = [*second["request"]["input"], text("Half."), {"role": "user", "content": [{"type": "input_text", "text": "Go on."}]}]
    third = logged("r3", whole, text("Done."), at=2)
    (attempt,) = attempts(FORMAT, third, first, second)
    assert [(turn["role"], turn["content"], turn["call"]) for turn in attempt.turns] == TURNS


def test_a_conversation_whose_beginning_is_not_logged_is_read_from_where_it_is() -> None:
    _, second, third = chained()
    (attempt,) = attempts(FORMAT, second, third)
    assert [turn["role"] for turn in attempt.turns] == ["system", "tool", "tool", "assistant", "user", "assistant"]


def test_a_conversations_id_bundles(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log", [logged("r1", "Do it.", text("a"), conversation={"id": "c"})])
    (piece,) = FORMAT.split(path)
    assert isinstance(piece, SourceRecord) and piece.bundle_ref == "conversation:c"


def test_a_response_that_went_on_is_superseded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    values, refs, read_to = [], set(), 0
    for content in (b"\n".join(stream().split(b"\n")[:5]) + b"\n", stream()):
        path.write_bytes(content)
        (piece,) = FORMAT.split(path, read_to)  # as landing reads on
        assert isinstance(piece, SourceRecord)
        values.append(piece.value)
        refs.add(piece.bundle_ref)
        read_to = piece.byte_end
    assert len(refs) == 1
    for given in (values, values[::-1]):
        (attempt,) = attempts(FORMAT, *given)
        assert [(turn["content"], turn["finish_reason"]) for turn in attempt.turns] == [("a", "stop")]
    polled = {**logged("r1", "Do it."), "response": {**response("r1"), "status": "queued"}}
    (attempt,) = attempts(FORMAT, polled, logged("r1", "Do it.", text("Done.")))
    assert [turn["content"] for turn in attempt.turns] == ["Mend.", "Do it.", "Done."]


def test_a_response_alone_and_its_stream(tmp_path: Path) -> None:
    for content in (json.dumps(response("r1", text("a"))), json.dumps(response("r1", text("a")), indent=1), stream()):
        (attempt,), bad = of_text(FORMAT, tmp_path / "log", content)
        assert not bad and [(turn["role"], turn["content"]) for turn in attempt.turns] == [("assistant", "a")]
        assert attempt.tools and attempt.model == "m" and attempt.started_at is not None


def test_failures_are_faults() -> None:
    for changes, fault in (({"status": "failed", "error": {"code": "x"}}, "model_error"), ({"status": "cancelled"}, "aborted")):
        value = {"request": {"input": "Do it."}, "response": response("r1", **changes)}
        (attempt,) = attempts(FORMAT, value)
        assert (attempt.fault, attempt.num_sampled_turns) == (fault, 0)


@pytest.mark.parametrize(
    "value", [{"response": response("r1")}, {"request": {"input": 5}, "response": response("r1", text("a"))}]
)
def test_other_shapes_are_refused(tmp_path: Path, value: dict[str, Any]) -> None:
    *_, bad = FORMAT.split(write_lines(tmp_path / "log", [chained()[0], value]))
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape"


def test_real_files_are_read(shared_logs: Path) -> None:
    folder = shared_logs / "openai_chat_logs"
    (called,), bad = read(FORMAT, folder / "server__h-llm__tests__fixtures__openai-responses__response-functions.json")
    assert not bad and called.turns[0]["tool_calls"][0]["function"]["name"] == "get_current_weather"
    assert (called.num_prompt_tokens, called.num_reply_tokens) == (291, 23)
    (said,), _ = read(FORMAT, folder / "server__h-llm__tests__fixtures__openai-responses__response-reasoning.json")
    assert said.turns[0]["content"] == "The classic tongue twister..." and said.turns[0]["sampled"]
