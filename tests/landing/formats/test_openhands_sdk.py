"""Events of OpenHands's SDK."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.openhands_sdk import OpenHandsSdk
from tests.landing.bundles import attempts_of, bad_of, one, records_of, told
from tests.landing.lines import line, write_lines

FORMAT = OpenHandsSdk()
FOLDERS = {"openhands"}


def event(number: int, kind: str, source: str = "environment", **fields: Any) -> dict[str, Any]:
    return {"id": f"e{number}", "timestamp": f"2026-11-20T10:00:{number:02}.000001", "source": source, "kind": kind, **fields}


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words, "cache_prompt": False}]


def act(number: int, call: str, response: str, thought: str = "", **fields: Any) -> dict[str, Any]:
    asked = {"id": call, "name": "terminal", "arguments": f'{{"c":"{call}"}}'}
    told = {"thought": text(thought) if thought else [], "tool_name": "terminal", "tool_call_id": call, "tool_call": asked}
    return event(number, "ActionEvent", "agent", **told, llm_response_id=response, **fields)


def observe(number: int, call: str, words: str) -> dict[str, Any]:
    return event(number, "ObservationEvent", tool_name="terminal", tool_call_id=call, observation={"content": text(words)})


def stats(number: int, prompt: int, reply: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": reply}
    of_agent = {"model_name": "m-1", "accumulated_cost": 0.5, "accumulated_token_usage": usage}
    return event(number, "ConversationStateUpdateEvent", key="stats", value={"usage_to_metrics": {"default": of_agent}})


LINES = [
    event(
        0,
        "SystemPromptEvent",
        "agent",
        system_prompt={"type": "text", "text": "You are OpenHands."},
        tools=[{"name": "terminal"}],
    ),
    event(1, "MessageEvent", "user", llm_message={"role": "user", "content": text("Look.")}),
    act(2, "c1", "r1", "I look.", reasoning_content="hm"),
    act(3, "c2", "r1"),
    observe(4, "c1", "a.txt"),
    observe(5, "c2", "b.txt"),
    stats(6, 10, 2),
    event(7, "MessageEvent", "agent", llm_message={"role": "assistant", "content": text("Two files.")}, llm_response_id="r2"),
    event(8, "TokenEvent", "agent", prompt_token_ids=[1, 2], response_token_ids=[3]),
    event(9, "LLMCompletionLogEvent", "agent", filename="x", log_data="{}"),
    stats(10, 30, 5),
]
FILES = [b"".join(line(row) for row in LINES), json.dumps(LINES[2], indent=2).encode()]
EXPECTED = [
    ("system", False, "You are OpenHands."),
    ("user", False, "Look."),
    ("assistant", True, "I look."),
    ("tool", False, "a.txt"),
    ("tool", False, "b.txt"),
    ("assistant", True, "Two files."),
]


def test_actions_of_one_answer_are_one_turn(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "events.jsonl", LINES)
    attempt = one(FORMAT, path)
    assert told(attempt) == EXPECTED
    assert [call["id"] for call in attempt.turns[2]["tool_calls"]] == ["c1", "c2"] and attempt.turns[2]["reasoning"] == "hm"
    assert (attempt.model, attempt.tools) == ("m-1", [{"name": "terminal"}])
    # sums that the log carries along, and no sum of them
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd, attempt.num_gaps) == (30, 5, 0.5, 0)
    assert [call["token_ids"] for call in attempt.calls] == [None, [3]] and not attempt.exact_tokens
    assert [record.skip_reason for record in records_of(FORMAT, path) if record.skip_reason] == ["duplicate_view"]


def test_events_in_files_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "conversations" / "0123abcd" / "events"
    folder.mkdir(parents=True)
    paths = []
    for number, row in enumerate(LINES):
        paths.append(folder / f"event-{number:05}-{row['id']}.json")
        paths[-1].write_text(json.dumps(row), encoding="utf-8")
    found = attempts_of(FORMAT, *paths)
    assert {ref: [told(attempt) for attempt in attempts] for ref, attempts in found.items()} == {"0123abcd": [EXPECTED]}


def test_a_condensation_a_gap_and_how_it_ended(tmp_path: Path) -> None:
    condensed = event(11, "Condensation", forgotten_event_ids=["e2", "e3", "e4", "e5"], summary="Looked.", summary_offset=2)
    rest = [condensed, event(12, "MessageEvent", "user", llm_message={"role": "user", "content": text("And?")})]
    rest += [act(13, "c3", "r3", "On."), event(14, "ConversationErrorEvent", code="RuntimeError", detail="x")]
    (attempts,) = attempts_of(FORMAT, write_lines(tmp_path / "events.jsonl", [*LINES, *rest])).values()
    assert told(attempts[1]) == [
        *EXPECTED[:2],
        ("user", False, "Looked."),
        ("assistant", False, "Two files."),
        ("user", False, "And?"),
        ("assistant", True, "On."),
    ]
    assert (attempts[1].link, attempts[1].fault, attempts[0].fault) == ("compaction", "harness_error", None)
    orphan = one(FORMAT, write_lines(tmp_path / "gap.jsonl", [*LINES, observe(11, "c9", "who asked?")]))
    assert orphan.num_gaps == 1


def test_an_error_is_an_answer_of_the_tool(tmp_path: Path) -> None:
    rows = [*LINES[:3], event(4, "AgentErrorEvent", "agent", error="no such tool", tool_name="terminal", tool_call_id="c1")]
    assert told(one(FORMAT, write_lines(tmp_path / "events.jsonl", rows)))[-1] == ("tool", False, "no such tool")


@pytest.mark.parametrize(
    "row", [event(20, "ActionEvent", tool_call=5), event(20, "Condensation", forgotten_event_ids=1), {"kind": 1}]
)
def test_an_event_of_another_shape_is_refused(tmp_path: Path, row: Any) -> None:
    (bad,) = bad_of(FORMAT, write_lines(tmp_path / "events.jsonl", [*LINES, row]))
    assert bad.reason == "wrong_shape"


def test_the_real_events(shared_logs: Path) -> None:
    attempt = one(FORMAT, shared_logs / "openhands" / "sdk_v1_events.jsonl")
    assert (len(attempt.turns), attempt.num_sampled_turns, attempt.num_gaps) == (5, 2, 1)
    assert attempt.model == "litellm_proxy/minimax-m2.7"


def test_an_answer_that_may_lack_one_of_its_parallel_calls_is_not_sampled(tmp_path: Path) -> None:
    torn = [row for row in LINES if row.get("tool_call_id") != "c2" or row["kind"] != "ActionEvent"]
    attempt = one(FORMAT, write_lines(tmp_path / "torn.jsonl", torn))
    assert told(attempt) == [*EXPECTED[:2], ("assistant", False, "I look."), *EXPECTED[3:]]
    assert (attempt.num_gaps, len(attempt.calls), len(attempt.record_ids)) == (1, 1, len(torn) - 1)
