"""ShareGPT and LLaMA-Factory conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import BadRecord
from pipelines.landing.sharegpt import ShareGPT
from tests.landing.formats.reading import of_text, read
from tests.landing.lines import attempts, line, write_lines

FORMAT = ShareGPT()
TOOLS = json.dumps([{"name": "look", "parameters": {}}])


def turns(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"from": speaker, "value": said} for speaker, said in pairs]


def part(kind: str, said: str) -> dict[str, str]:
    return {"type": kind, "value": said}


OLD = {
    "conversations": turns(
        ("human", "Do it."),
        ("function_call", '{"name": "look", "arguments": {"at": 1}}'),
        ("observation", "seen"),
        ("gpt", "Done."),
    ),
    "system": "Mend.",
    "tools": TOOLS,
}
CALLS = [part("reasoning", "hm"), *(part("tool_call", json.dumps({"name": "look", "arguments": {"at": at}})) for at in (1, 2))]
RESULTS = json.dumps([{"tool_call_id": f"t{at}", "name": "look", "content": f"seen {at}"} for at in (1, 2)])
NEW = {
    "messages": [
        {"role": "user", "content": [part("text", "Do it.")]},
        {"role": "assistant", "content": CALLS},
        {"role": "tool", "content": [part("text", RESULTS)]},
        {"role": "assistant", "content": [part("text", "Done.")]},
    ],
    "tools": TOOLS,
}
PAIR = {
    "chosen_messages": [{"role": role, "content": [part("text", said)]} for role, said in (("user", "q"), ("assistant", "a"))],
    "rejected_messages": [{"role": role, "content": [part("text", said)]} for role, said in (("user", "q"), ("assistant", "b"))],
}
FILES = [line(OLD), json.dumps([OLD], indent=2).encode(), line(NEW), line(PAIR)]
FOLDERS = {"sharegpt_tools"}


def test_speakers_become_roles_and_calls_are_read(tmp_path: Path) -> None:
    (attempt,), bad = of_text(FORMAT, tmp_path / "log", json.dumps([OLD]))
    assert not bad and [(turn["role"], turn["content"]) for turn in attempt.turns] == [
        ("system", "Mend."),
        ("user", "Do it."),
        ("assistant", None),
        ("tool", "seen"),
        ("assistant", "Done."),
    ]
    assert attempt.turns[2]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at":1}'}
    assert attempt.tools == json.loads(TOOLS)
    assert not any(turn["sampled"] for turn in attempt.turns) and attempt.turns[4]["is_demo"]


def test_merged_results_of_parallel_calls_are_told_apart() -> None:
    (attempt,) = attempts(FORMAT, NEW)
    assert [turn["role"] for turn in attempt.turns] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [call["id"] for call in attempt.turns[1]["tool_calls"]] == ["t1", "t2"]
    assert [(turn["tool_call_id"], turn["content"]) for turn in attempt.turns[2:4]] == [("t1", "seen 1"), ("t2", "seen 2")]
    assert attempt.turns[1]["reasoning"] == "hm"
    strange = json.loads(json.dumps(NEW).replace('\\"name\\": \\"look\\", \\"content', '\\"name\\": \\"other\\", \\"content'))
    assert [turn["role"] for turn in attempts(FORMAT, strange)[0].turns] == ["user", "assistant", "tool", "assistant"]


def test_a_pair_is_two_attempts() -> None:
    assert [[turn["content"] for turn in attempt.turns] for attempt in attempts(FORMAT, PAIR)] == [["q", "a"], ["q", "b"]]


@pytest.mark.parametrize(
    "value",
    [
        {"conversations": []},
        {"conversations": turns(("moderator", "Order!"))},
        {"conversations": [{"from": "human"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"chosen_messages": PAIR["chosen_messages"]},
    ],
)
def test_other_shapes_are_refused(tmp_path: Path, value: dict[str, Any]) -> None:
    *_, bad = FORMAT.split(write_lines(tmp_path / "log", [OLD, value]))
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape"


def test_real_files_are_read(shared_logs: Path) -> None:
    folder = shared_logs / "sharegpt_tools"
    plain, bad = read(FORMAT, folder / "dummy_conversation.json")
    assert (len(plain), bad) == (500, [])
    tools, bad = read(FORMAT, folder / "reason_tool_use_demo_50.jsonl")
    assert (len(tools), bad) == (50, [])
    assert sum(len(turn.get("tool_calls", ())) for attempt in tools for turn in attempt.turns) == 68
    assert sum(1 for attempt in tools if attempt.tools) > 40
    pairs, bad = read(FORMAT, folder / "v1_dpo_demo.jsonl")
    assert (len(pairs), bad) == (20, [])
    assert not any(turn["sampled"] for attempt in (*plain, *tools, *pairs) for turn in attempt.turns)
