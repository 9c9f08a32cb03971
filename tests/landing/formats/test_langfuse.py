"""Langfuse exports; the comparison with Langfuse's own reading is test_langfuse_oracle.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.landing import registry
from pipelines.landing.format import Attempt, BadRecord, SourceRecord
from pipelines.landing.langfuse import Langfuse
from tests.landing.lines import attempts, stored

SYSTEM = {"role": "system", "parts": [{"type": "text", "content": "Help."}]}
ASKED = {"role": "user", "parts": [{"type": "text", "content": "Where is 7?"}]}
CALLED = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "look_up", "arguments": {"order": 7}}]}
RESULT = {"role": "user", "parts": [{"type": "tool_call_response", "id": "c1", "name": "look_up", "result": "sent"}]}
ANSWERED = {"role": "assistant", "parts": [{"type": "text", "content": "It was sent."}], "finish_reason": "stop"}


def observation(number: int, type: str = "SPAN", *, parent: int | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"o{number}",
        "traceId": "t",
        "type": type,
        "name": f"step {number}",
        "parentObservationId": None if parent is None else f"o{parent}",
        "startTime": f"2026-11-20T10:00:0{number}.000Z",
        "endTime": f"2026-11-20T10:00:0{number}.500Z",
        "level": "DEFAULT",
        "statusMessage": None,
        "input": None,
        "output": None,
        "metadata": "{}",
        **changes,
    }


def generation(number: int, input: Any, output: Any, **changes: Any) -> dict[str, Any]:
    said = {"model": "m", "usageDetails": {"input": 9, "output": 2, "total": 11}, "costDetails": {"total": 0.5}}
    return observation(number, "GENERATION", **{"input": input, "output": output, **said, **changes})


def score(name: str, value: Any, data_type: str = "NUMERIC", **changes: Any) -> dict[str, Any]:
    return {
        "id": f"score-{name}",
        "traceId": "t",
        "name": name,
        "value": value,
        "dataType": data_type,
        "observationId": None,
        **changes,
    }


def trace(*scores: dict[str, Any]) -> dict[str, Any]:
    return {"id": "t", "projectId": "p", "name": "desk", "timestamp": "2026-11-20T10:00:00Z", "scores": list(scores)}


OBSERVATIONS = [
    observation(1, "AGENT", input="Where is 7?", output="It was sent."),
    generation(2, json.dumps([SYSTEM, ASKED]), json.dumps([CALLED]), parentObservationId="o1"),
    observation(3, "TOOL", parent=1, input={"order": 7}, output="sent"),
    generation(4, [SYSTEM, ASKED, CALLED, RESULT], [ANSWERED], parentObservationId="o1"),
]
EXPORT = {"trace": trace(), "observations": OBSERVATIONS}
SNAKE = {
    "id": "o2",
    "trace_id": "t",
    "type": "GENERATION",
    "start_time": "2026-11-20 10:00:02.000",
    "parent_observation_id": None,
    "provided_model_name": "m",
    "input": json.dumps([SYSTEM, ASKED]),
    "output": json.dumps(ANSWERED),
    "usage_details": {"input": 9, "output": 2},
}
FORMAT = Langfuse()
FILES = [
    json.dumps(EXPORT).encode(),
    json.dumps(EXPORT, indent=2).encode(),
    json.dumps({**trace(), "observations": OBSERVATIONS}).encode(),
    json.dumps(OBSERVATIONS).encode(),
    json.dumps({"data": OBSERVATIONS, "meta": {"page": 1}}).encode(),
    b"".join(json.dumps(one).encode() + b"\n" for one in OBSERVATIONS),
    json.dumps(SNAKE).encode() + b"\n",
    json.dumps(trace()).encode() + b"\n",
    json.dumps(score("correct", 1)).encode() + b"\n",
]
FOLDERS = {"langfuse_export"}


def values(*observations: dict[str, Any], header: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [*([] if header is None else [{"trace": header}]), *({"observation": one} for one in observations)]


def attempts_of(*observations: dict[str, Any], header: dict[str, Any] | None = None) -> list[Attempt]:
    return attempts(FORMAT, *values(*observations, header=header))


def read(path: Path, content: Any) -> list[Any]:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return list(FORMAT.split(path))


def test_generations_of_a_trace_are_one_attempt() -> None:
    (attempt,) = attempts_of(*OBSERVATIONS, header=trace())
    assert [(turn["role"], turn["content"], turn["sampled"]) for turn in attempt.turns] == [
        ("system", "Help.", False),
        ("user", "Where is 7?", False),
        ("assistant", None, True),
        ("tool", "sent", False),
        ("assistant", "It was sent.", True),
    ]
    (call,) = attempt.turns[2]["tool_calls"]  # out of message.parts
    assert (call["id"], call["function"]) == ("c1", {"name": "look_up", "arguments": '{"order":7}'})
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd) == ("m", 18, 4, 1.0)
    assert (attempt.outcome, attempt.fault, attempt.calls[1]["finish_reason"]) == (None, None, "stop")


@given(st.permutations(values(*OBSERVATIONS, header=trace(score("correct", 1)))))
def test_the_order_of_records_does_not_matter(shuffled: list[dict[str, Any]]) -> None:
    (attempt,) = attempts(FORMAT, *shuffled)
    assert (attempt.ref, len(attempt.calls), attempt.outcome) == ("o2/0", 2, 1.0)


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [
        ([score("correct", 1, "BOOLEAN")], (1.0, "scores.correct")),
        ([score("correct", 0.25)], (0.25, "scores.correct")),
        ([score("correct", 1), score("toxicity", 0)], (None, None)),
        ([score("tone", "calm", "CATEGORICAL")], (None, None)),
        ([score("tone", 1, "CATEGORICAL"), score("correct", 0)], (0.0, "scores.correct")),
        ([score("correct", 1, observationId="o4")], (1.0, "scores.correct")),
        ([score("correct", 1, observationId="o1")], (1.0, "scores.correct")),
        ([score("correct", 1, observationId="elsewhere")], (None, None)),
        ([score("correct", None)], (None, None)),
        ([], (None, None)),
    ],
)
def test_the_only_score_is_the_outcome(scores: list[dict[str, Any]], outcome: tuple[float | None, str | None]) -> None:
    (attempt,) = attempts_of(*OBSERVATIONS, header=trace(*scores))
    assert (attempt.outcome, attempt.outcome_source) == outcome


def test_scores_may_come_by_themselves_or_with_an_earlier_export() -> None:
    alone = attempts(FORMAT, *values(*OBSERVATIONS), {"score": score("correct", 1)})
    later = {**trace(score("correct", 1)), "updatedAt": "2026-11-21T00:00:00Z"}
    twice = attempts(FORMAT, {"trace": trace()}, *values(*OBSERVATIONS), {"trace": later})
    assert [attempt.outcome for attempt in (*alone, *twice)] == [1.0, 1.0]


def test_a_score_of_a_trace_with_two_unlinked_attempts_is_nobodys() -> None:
    judge = generation(5, "Rate it.", "Good.")
    assert [attempt.outcome for attempt in attempts_of(*OBSERVATIONS, judge, header=trace(score("correct", 1)))] == [None, None]


@pytest.mark.parametrize("nothing", [None, "", {}, "null", "{}"])
def test_an_export_without_inputs_and_outputs_is_refused(tmp_path: Path, nothing: Any) -> None:
    header, bad = read(tmp_path / "t.json", {"trace": trace(), "observations": [generation(2, nothing, nothing)]})
    assert isinstance(header, SourceRecord) and isinstance(bad, BadRecord) and bad.reason == "wrong_shape"
    assert "neither input nor output" in bad.detail and "export the observations with input and output" in bad.detail
    assert FORMAT.attempts(stored(FORMAT, header.value)).attempts == []


def test_a_failed_generation_is_a_fault() -> None:
    failed = generation(2, [ASKED], None, level="ERROR", statusMessage="overloaded")
    (attempt,) = attempts_of(failed, header=trace(score("correct", 0)))
    assert (attempt.fault, attempt.outcome, attempt.num_sampled_turns) == ("model_error", None, 0)


def test_a_newer_export_of_an_observation_replaces_the_older() -> None:
    running = generation(2, [SYSTEM, ASKED], None, endTime=None, updatedAt="2026-11-20T10:00:02Z")
    ended = {**OBSERVATIONS[1], "updatedAt": "2026-11-20T10:00:03Z"}
    bundle = FORMAT.attempts(stored(FORMAT, *values(ended, running)))
    assert [attempt.record_ids for attempt in bundle.attempts] == [["rec-0"]]
    assert bundle.left == {"rec-1": ("o2/0", "superseded")}


def test_parallel_calls_that_came_back_one_by_one_are_still_the_answer() -> None:
    def written(name: str) -> str:
        return json.dumps([{"function": {"name": name, "arguments": "{}"}, "id": f"call_{name}", "type": "function"}])

    first = generation(2, [{"role": "user", "content": "hi"}], [{"role": "assistant", "content": written(name)} for name in "ab"])
    back = [{"role": "tool", "content": content} for content in (written("a"), "A", written("b"), "B")]
    second = generation(4, [{"role": "user", "content": "hi"}, *back], [{"role": "assistant", "content": "done"}])
    (attempt,) = attempts_of(first, second)
    assert [(turn["role"], turn["sampled"]) for turn in attempt.turns] == [
        ("user", False),
        ("assistant", True),
        ("tool", False),
        ("tool", False),
        ("assistant", True),
    ]
    assert [turn.get("tool_call_id") for turn in attempt.turns[2:4]] == ["call_a", "call_b"] and attempt.num_gaps == 0


def test_every_form_of_file_gives_the_same_attempt(tmp_path: Path) -> None:
    for content in FILES[:6]:
        pieces = read(tmp_path / "t", content)
        for number, piece in enumerate(pieces, 1):
            assert isinstance(piece, SourceRecord) and piece.bundle_ref == "t"
            held = piece.value.get("observation") or piece.value["trace"]
            assert json.loads(content[piece.byte_start : piece.byte_end]) == held
            assert list(FORMAT.split(tmp_path / "t", piece.byte_end, piece.line)) == pieces[number:]
        (attempt,) = attempts(FORMAT, *(piece.value for piece in pieces))
        assert len(attempt.calls) == 2
    (row,) = read(tmp_path / "t", FILES[6])
    (attempt,) = attempts(FORMAT, row.value)
    assert (attempt.model, attempt.num_prompt_tokens, attempt.turns[-1]["content"]) == ("m", 9, "It was sent.")


@pytest.mark.parametrize(
    "changes", [{"id": None}, {"traceId": None}, {"startTime": "noon"}, {"input": 7}, {"input": {"strange": 1}}]
)
def test_an_observation_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    _, bad, good = read(
        tmp_path / "t.json", {"trace": trace(), "observations": [{**OBSERVATIONS[1], **changes}, OBSERVATIONS[3]]}
    )
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape" and isinstance(good, SourceRecord)


def test_the_real_files(shared_logs: Path) -> None:
    found = {}
    for path in sorted((shared_logs / "langfuse_export").glob("*.json")):
        assert registry.detect(path) is not None
        pieces = list(FORMAT.split(path))
        assert all(isinstance(piece, SourceRecord) and piece.skip_reason is None for piece in pieces)
        made = attempts(FORMAT, *(piece.value for piece in pieces if isinstance(piece, SourceRecord)))
        found[path.name.split("-20")[0]] = [len(pieces), len(made), *(attempt.num_sampled_turns for attempt in made)]
        assert all(attempt.outcome is None for attempt in made)  # no trace has exactly one score
    assert found == {
        "crewai": [7, 1, 1],
        "google-adk": [6, 1, 2],
        "google-gemini": [2, 1, 1],
        "koog": [12, 1, 2],
        "langgraph-python": [10, 1, 2],
        "openai-agents": [6, 1, 2],
        "openai-assistants": [5, 1, 1],
        "pydantic-ai": [4, 1, 1],
        "pydantic-ai-tools": [13, 2, 3, 1],
        "vertex-ai": [2, 1, 1],
    }
