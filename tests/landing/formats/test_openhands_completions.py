"""OpenHands' completion log."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import BadRecord
from pipelines.landing.openhands_completions import OpenHandsCompletions
from tests.landing.formats.chat_lines import ASK, SYSTEM, completion, conversation, said, told, tool_call
from tests.landing.formats.reading import of_text, read
from tests.landing.lines import attempts

FORMAT = OpenHandsCompletions()
XML = "<function=look>\n<parameter=at>1</parameter>\n</function>"


def parts(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def logged(number: int, prompt: list[dict[str, Any]], answer: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "messages": [parts(message) for message in prompt],
        "tools": [{"type": "function", "function": {"name": "look"}}],
        "kwargs": {"temperature": 0.0, "extra_body": {"metadata": {"tags": []}}},
        "context_window": 1000,
        "response": completion(f"c{number}", answer),
        "cost": 0.5,
        "timestamp": 1_790_000_000.5 + number,
        "latency_sec": 0.25,
        **changes,
    }


def calls() -> list[dict[str, Any]]:
    found = []
    for number, call in enumerate(conversation("a", "b", "c")):
        found.append(logged(number, call["request"]["messages"], call["response"]["choices"][0]["message"]))
    return found


FILES = [json.dumps(calls()[0]).encode(), json.dumps(calls()[1], indent=2).encode()]
FOLDERS = {"openhands_litellm_completions"}


def test_files_of_one_attempt_are_one_attempt(tmp_path: Path) -> None:
    paths = []
    for number, call in enumerate(calls()):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(call))
    for seed in range(3):
        random.Random(seed).shuffle(paths)
        (attempt,), bad = read(FORMAT, *paths)
        assert not bad and [turn["call"] for turn in attempt.turns] == [None, None, 0, None, 1, None, 2]
        assert (attempt.cost_usd, attempt.harness, attempt.num_gaps) == (1.5, "openhands", 0)
        assert attempt.started_at is not None and attempt.started_at.timestamp() == 1_790_000_000.25


def test_tools_in_the_text_are_what_the_model_saw_and_wrote() -> None:
    """`raw_messages` and the response with calls are the harness's own reading of it."""
    asked, answer = [SYSTEM, ASK], said(XML)
    reading = said(None, tool_calls=[tool_call()])
    new = [
        logged(1, asked, reading, raw_messages=asked, raw_response=completion("c1", answer)),
        logged(
            2,
            [*asked, answer, {"role": "user", "content": "EXECUTION RESULT: seen"}],
            said("b"),
            raw_messages=[*asked, reading, told("seen")],
            raw_response=completion("c2", said("b")),
        ),
    ]
    old = [{**call, "fncall_messages": call["raw_messages"], "response": call["raw_response"]} for call in new]
    for values in (new, [{k: v for k, v in call.items() if not k.startswith("raw")} for call in old]):
        (attempt,) = attempts(FORMAT, *values)
        assert [(turn["role"], turn["call"]) for turn in attempt.turns] == [
            ("system", None),
            ("user", None),
            ("assistant", 0),
            ("user", None),
            ("assistant", 1),
        ]
        assert attempt.turns[2]["content"] == XML and "tool_calls" not in attempt.turns[2]


@pytest.mark.parametrize("changes", [{"messages": None}, {"messages": [], "response": None}, {"response": {"choices": 5}}])
def test_other_shapes_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "log"
    path.write_text(json.dumps({**calls()[0], **changes}))
    (bad,) = FORMAT.split(path)
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape"


def test_a_call_without_an_answer_keeps_what_was_asked(tmp_path: Path) -> None:
    (attempt,), _ = of_text(FORMAT, tmp_path / "log", json.dumps({**calls()[0], "response": None, "error": "timeout"}))
    assert (attempt.num_sampled_turns, attempt.fault) == (0, "model_error")


def test_the_real_calls_are_one_attempt(shared_logs: Path) -> None:
    (attempt,), bad = read(FORMAT, *(shared_logs / "openhands_litellm_completions" / "fncall").iterdir())
    assert not bad and (len(attempt.turns), attempt.num_sampled_turns, attempt.num_gaps) == (13, 6, 0)
    assert [number for number, turn in enumerate(attempt.turns) if turn["sampled"]] == [2, 4, 6, 8, 10, 12]
    assert attempt.cost_usd == pytest.approx(0.118344) and attempt.num_prompt_tokens == 35_428
