"""Training sets are demonstrations: nothing in them was sampled by a logged policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import BadRecord
from pipelines.landing.openai_finetune import OpenAIFinetune
from tests.landing.formats.chat_lines import ASK, SYSTEM, said, told, tool_call
from tests.landing.formats.reading import of_text
from tests.landing.lines import attempts, line, write_lines

FORMAT = OpenAIFinetune()
XML = "I look.\n<function=look>\n<parameter=at>1</parameter>\n</function>"
ROW = {"messages": [SYSTEM, ASK, said(None, tool_calls=[tool_call()]), told("seen"), said("b")], "tools": [{"type": "function"}]}
PAIR = {"input": {"messages": [ASK]}, "preferred_output": [said("a")], "non_preferred_output": [said("b")]}
FILES = [
    line(ROW),
    line({"messages": [SYSTEM, ASK, said(XML)]}),
    json.dumps([ROW]).encode(),
    line(PAIR),
    line({"prompt": "Do it.", "chosen": [said("a")], "rejected": [said("b")]}),
]
FOLDERS: set[str] = set()


def test_the_assistants_turns_are_demonstrations() -> None:
    (attempt,) = attempts(FORMAT, ROW)
    assert [(turn["role"], turn["sampled"], turn.get("is_demo", False)) for turn in attempt.turns] == [
        ("system", False, False),
        ("user", False, False),
        ("assistant", False, True),
        ("tool", False, False),
        ("assistant", False, True),
    ]
    assert (attempt.calls, attempt.tools, attempt.outcome, attempt.model) == ([], [{"type": "function"}], None, None)


def test_calls_written_as_text_stay_text() -> None:
    (attempt,) = attempts(FORMAT, {"messages": [SYSTEM, ASK, said(XML)]})
    assert attempt.turns[-1]["content"] == XML and "tool_calls" not in attempt.turns[-1]


def test_of_a_pair_both_are_kept_and_neither_scored(tmp_path: Path) -> None:
    found, bad = of_text(FORMAT, tmp_path / "log", line(PAIR))
    assert not bad and {attempt.ref: attempt.turns[-1]["content"] for attempt in found} == {
        "preferred": "a",
        "non_preferred": "b",
    }
    assert [attempt.outcome for attempt in found] == [None, None]
    chosen, rejected = attempts(FORMAT, {"prompt": "Do it.", "chosen": [said("a")], "rejected": [said("b")]})
    assert [turn["content"] for turn in (*chosen.turns, *rejected.turns)] == ["Do it.", "a", "Do it.", "b"]


@pytest.mark.parametrize("value", [{"messages": []}, {"messages": None}, {"messages": ["x"]}, {**PAIR, "preferred_output": 1}])
def test_other_shapes_are_refused(tmp_path: Path, value: dict[str, Any]) -> None:
    *_, bad = FORMAT.split(write_lines(tmp_path / "log", [ROW, value]))
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape"
