"""Chunks of streamed completions become the completion that they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.landing.format import SourceRecord, Unfinished
from pipelines.landing.openai_stream import OpenAIStream
from tests.landing.bundles import read as read_bundles
from tests.landing.formats.reading import of_text, read
from tests.landing.lines import attempts, line, write_lines


def chunk(id: str, delta: dict[str, Any], index: int = 0, **changes: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": changes.pop("finish_reason", None)}
    return {
        "id": id,
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "m",
        "choices": [choice],
        **changes,
    }


def stream(id: str) -> list[dict[str, Any]]:
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "look", "arguments": ""}}
    return [
        chunk(id, {"role": "assistant", "content": ""}),
        chunk(id, {"reasoning_content": "hm"}),
        chunk(id, {"content": "Look"}),
        chunk(id, {"content": "ing"}),
        chunk(id, {"tool_calls": [call]}),
        chunk(id, {"tool_calls": [{"index": 0, "function": {"arguments": '{"at"'}}]}),
        chunk(id, {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
        chunk(id, {"tool_calls": [{"index": 1, "id": "t2", "function": {"name": "look", "arguments": "{}"}}]}),
        chunk(id, {}, finish_reason="tool_calls"),
        {**chunk(id, {}), "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}},
    ]


def sse(values: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + line(value) + b"\n" for value in values) + b"data: [DONE]\n\n"


FORMAT = OpenAIStream()
FILES = [b"".join(line(value) for value in stream("1")), sse(stream("1")), sse(stream("1"))[:300]]
FOLDERS = {"openai_chat_logs"}


def test_chunks_are_joined_in_both_layouts(tmp_path: Path) -> None:
    for content in FILES[:2]:
        (attempt,), bad = of_text(FORMAT, tmp_path / "log", content)
        (turn,) = attempt.turns
        assert not bad and (turn["content"], turn["reasoning"], turn["sampled"]) == ("Looking", "hm", True)
        assert [call["function"]["arguments"] for call in turn["tool_calls"]] == ['{"at":1}', "{}"]
        assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.model) == (5, 9, "m")
        assert turn["finish_reason"] == "tool_calls"


def test_a_stream_that_was_cut_off_is_a_fault(tmp_path: Path) -> None:
    (cut,), bad = of_text(FORMAT, tmp_path / "log", sse(stream("1")[:4]))
    assert not bad and (cut.fault, cut.turns[0]["content"]) == ("aborted", "Looking")
    (whole,), _ = of_text(FORMAT, tmp_path / "log", sse(stream("1")))
    assert whole.fault is None


def test_mixed_streams_and_choices_are_told_apart(tmp_path: Path) -> None:
    one, two = stream("1"), stream("2")
    path = write_lines(tmp_path / "log", [value for pair in zip(one, two, strict=True) for value in pair])
    found, bad = read(FORMAT, path)
    assert not bad and [attempt.turns[0]["content"] for attempt in found] == ["Looking", "Looking"]
    choices = [chunk("3", {"content": text}, index=index) for index, text in ((1, "b"), (0, "a"), (1, "b"), (0, "a"))]
    (piece,) = FORMAT.split(write_lines(tmp_path / "n", choices))
    assert isinstance(piece, SourceRecord)
    assert [attempt.turns[0]["content"] for attempt in attempts(FORMAT, piece.value)] == ["aa", "bb"]


def test_a_stream_that_grew_is_superseded(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log", stream("1")[:3])
    (early,) = FORMAT.split(path)
    (late,) = FORMAT.split(write_lines(path, stream("1")))
    assert isinstance(early, SourceRecord) and isinstance(late, SourceRecord) and early.bundle_ref == late.bundle_ref
    for values in ([early.value, late.value], [late.value, early.value]):
        (attempt,) = attempts(FORMAT, *values)
        assert attempt.turns[0]["content"] == "Looking"
    (rest,) = FORMAT.split(path, early.byte_end, 3)  # as landing reads on
    assert isinstance(rest, SourceRecord) and rest.value == late.value
    assert (rest.byte_start, rest.line, rest.byte_end) == (early.byte_end, 3, late.byte_end)
    assert list(FORMAT.split(path, late.byte_end)) == []


def test_bad_lines_cost_themselves_and_a_torn_end_waits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(sse(stream("1")) + b"....\n" + b'data: {"id": "2", "obj')
    kinds = [type(piece).__name__ for piece in FORMAT.split(path)]
    assert kinds == ["SourceRecord", "BadRecord", "Unfinished"]
    assert isinstance(list(FORMAT.split(path))[-1], Unfinished)


def test_real_files_are_read(shared_logs: Path) -> None:
    folder = shared_logs / "openai_chat_logs"
    (text,), _ = read(FORMAT, folder / "chat_completions_streaming_example.jsonl")
    assert text.turns[0]["content"].startswith("Santa Claus is a popular")
    (tool,), _ = read(FORMAT, folder / "chat_completions_streaming_function_example.jsonl")
    assert tool.turns[0]["tool_calls"][0]["function"]["arguments"] == '{"answer":"Boston"}' and tool.num_prompt_tokens == 57
    (cut,), bad = read(FORMAT, folder / "server__h-llm__tests__fixtures__openai-chat__response-streaming.txt")
    assert cut.turns[0]["content"] == "Hello" and [one.raw for one in bad] == [b"...."]


def test_a_stream_that_rotation_cut_in_two_is_one_answer_wherever_it_was_cut(tmp_path: Path) -> None:
    chunks = stream("1")
    (expected,), _ = of_text(FORMAT, tmp_path / "whole", FILES[0])
    for cut in range(1, len(chunks) - 1):
        halves = [b"".join(line(one) for one in half) for half in (chunks[:cut], chunks[cut:])]
        grown = b"".join(line(one) for one in chunks[: max(1, cut - 1)])  # the first half, read before it was rotated
        contents = [halves[1], halves[0], grown] if cut > 1 else [halves[1], halves[0]]
        paths = []
        for number, content in enumerate(contents):
            paths.append(tmp_path / f"{cut}-{number}.jsonl")
            paths[-1].write_bytes(content)
        found = read_bundles(FORMAT, paths, any_name=True)
        (attempt,) = found.attempts
        (turn,), (whole,) = attempt.turns, expected.turns
        assert {**turn, "id": 0, "reasoning_id": 0} == {**whole, "id": 0, "reasoning_id": 0}
        assert (attempt.fault, attempt.num_reply_tokens, len(attempt.record_ids)) == (None, 9, 2)
        assert sum(found.left.values()) == (cut > 1)


def test_half_a_stream_whose_end_is_nowhere_was_cut_off(tmp_path: Path) -> None:
    (attempt,), _ = of_text(FORMAT, tmp_path / "log", b"".join(line(one) for one in stream("1")[:4]))
    assert attempt.fault == "aborted"
