"""Recorder lines: what is a record, and how the calls of an attempt become turns."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import Attempt, BadRecord, SourceRecord, asked
from pipelines.landing.recorder import Recorder
from tests.landing.lines import attempts, call, line, stored, write_lines

FORMAT = Recorder()
FILES = [line(call(1)) + line(call(2)), line(call(1))[:70], b"{torn\n" + line(call(1))]
FOLDERS: set[str] = set()


def attempt_of(*values: dict[str, Any]) -> Attempt:
    (attempt,) = [attempt for attempt in attempts(Recorder(), *values) if attempt.ref == ""]
    return attempt


def test_one_call_becomes_an_attempt_with_exact_tokens() -> None:
    attempt = attempt_of(call(6))
    assert [(turn["role"], turn["sampled"], turn["call"]) for turn in attempt.turns] == [
        ("system", False, None),
        ("user", False, None),
        ("assistant", True, 0),
    ]
    assert attempt.calls == [
        {
            "call_id": "call-6",
            "prompt_token_ids": [1, 2, 3],
            "token_ids": [4, 5],
            "logprobs": [-0.5, -0.25],
            "finish_reason": "stop",
        }
    ]
    assert (attempt.exact_tokens, attempt.num_sampled_tokens, attempt.num_sampled_turns) == (True, 2, 1)
    assert (attempt.harness, attempt.task_id, attempt.attempt, attempt.policy_version) == (
        "order_desk",
        "task-1",
        2,
        "nightshift-order-desk@0",
    )
    system, request = asked(attempt.turns)
    assert [turn["content"] for turn in system] == ["Reply with the order number."]
    assert [(turn["role"], turn["content"]) for turn in request] == [("user", "Where is 6?")]
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.num_gaps) == (3, 2, 0)
    assert attempt.ended_at is not None and attempt.ended_at.isoformat() == "2026-11-20T10:00:01+00:00"


def chain() -> list[dict[str, Any]]:
    """Three calls of one attempt with a tool between; the harness sends the answers back without their reasoning."""
    question = [{"role": "user", "content": "Where is my order?"}]
    wants_tool = {"id": "t1", "type": "function", "function": {"name": "look_up", "arguments": {"order": 5}}}
    first = {"role": "assistant", "content": "", "tool_calls": [wants_tool], "reasoning_content": "I should look."}
    sent_back = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**wants_tool, "function": {"name": "look_up", "arguments": '{"order":5}'}}],
    }
    found = {"role": "tool", "tool_call_id": "t1", "content": "on its way"}
    second = {"role": "assistant", "content": "It is on its way."}
    thanks = {"role": "user", "content": "Thanks"}
    third = {"role": "assistant", "content": "Bye"}
    asked = [question, [*question, sent_back, found], [*question, sent_back, found, second, thanks]]
    return [
        call(
            1,
            call_id=f"c{number}",
            attempt_id="a",
            started_at=f"2026-11-20T10:00:0{number}Z",
            ended_at=f"2026-11-20T10:00:0{number}.5Z",
            request={"messages": messages, "tools": [{"type": "function"}]},
            response={"message": answer, "finish_reason": "stop"},
        )
        for number, (messages, answer) in enumerate(zip(asked, [first, second, third], strict=True))
    ]


def test_calls_that_extend_each_other_are_one_chain_of_turns_in_any_order_of_delivery() -> None:
    values = chain()
    expected = attempt_of(*values)
    assert [(turn["role"], turn["call"]) for turn in expected.turns] == [
        ("user", None),
        ("assistant", 0),
        ("tool", None),
        ("assistant", 1),
        ("user", None),
        ("assistant", 2),
    ]
    assert expected.turns[1]["reasoning"] == "I should look."
    assert expected.turns[1]["tool_calls"][0]["function"]["arguments"] == '{"order":5}'
    assert expected.record_ids == ["rec-0", "rec-1", "rec-2"]
    for seed in range(5):
        random.Random(seed).shuffle(values)
        assert dataclasses.replace(attempt_of(*values), record_ids=expected.record_ids) == expected


def test_a_call_beside_the_chain_is_an_attempt_of_its_own() -> None:
    values = chain()
    summary = call(
        1,
        call_id="side",
        attempt_id="a",
        started_at="2026-11-20T10:00:01.2Z",
        request={"messages": [{"role": "user", "content": "Summarise."}]},
        response={"message": {"role": "assistant", "content": "Short."}, "finish_reason": "stop"},
    )
    main, side = sorted(attempts(Recorder(), *values, summary), key=lambda attempt: attempt.ref)
    assert [entry["call_id"] for entry in main.calls] == ["c0", "c1", "c2"]
    assert [turn["call"] for turn in main.turns if turn["sampled"]] == [0, 1, 2]
    assert [turn["content"] for turn in side.turns] == ["Summarise.", "Short."]
    assert (side.parent_ref, side.outcome, side.num_gaps) == (None, None, 0)


def test_an_example_turn_in_the_prompt_is_not_sampled() -> None:
    messages = [
        {"role": "user", "content": "Parcel 48213 is late."},
        {"role": "assistant", "content": "ORDER: 48213"},
        {"role": "user", "content": "Parcel 5."},
    ]
    attempt = attempt_of(call(1, request={"messages": messages}))
    assert [turn["sampled"] for turn in attempt.turns] == [False, False, False, True]
    assert len(asked(attempt.turns)[1]) == 3 and attempt.num_gaps == 0


def test_a_failed_last_call_is_a_fault_and_no_outcome() -> None:
    values = chain()
    values[2] = {**values[2], "response": None, "fault": "timeout", "outcome": 0.0, "token_ids": None, "logprobs": None}
    attempt = attempt_of(*values)
    assert attempt.fault == "timeout"
    assert attempt.outcome is None
    assert len(attempt.calls) == 2
    assert [turn["role"] for turn in attempt.turns] == ["user", "assistant", "tool", "assistant", "user"]


def test_an_attempt_that_only_failed_keeps_what_was_asked() -> None:
    attempt = attempt_of(call(1, response=None, fault="engine_error", token_ids=None, logprobs=None))
    assert (attempt.fault, attempt.calls, attempt.exact_tokens) == ("engine_error", [], False)
    assert [turn["role"] for turn in attempt.turns] == ["system", "user"]


def test_calls_of_two_versions_have_no_version() -> None:
    values = chain()
    values[1] = {**values[1], "policy_version": "nightshift-order-desk@1"}
    assert attempt_of(*values).policy_version is None


def test_a_call_that_was_logged_again_counts_once() -> None:
    value = call(1)
    later = {**value, "ended_at": "2026-11-20T10:00:09Z", "outcome": 1.0}
    bundle = Recorder().attempts(stored(Recorder(), later, value))
    (attempt,) = bundle.attempts
    assert len(attempt.calls) == 1
    assert attempt.outcome == 1.0
    assert attempt.record_ids == ["rec-0"] and bundle.left == {"rec-1": ("", "superseded")}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"call_id": ""}, "must not be empty"),
        ({"attempt_id": 5}, "attempt_id"),
        ({"recorder": 2}, "recorder"),
        ({"purpose": "fun"}, "purpose"),
        ({"request": {"messages": []}}, "messages is empty"),
        ({"response": None}, "neither a response nor a fault"),
        ({"logprobs": [-0.5]}, "same length"),
        ({"token_ids": None}, "same length"),
        ({"outcome": 7}, "outside"),
        ({"started_at": "yesterday"}, "ISO 8601"),
    ],
)
def test_a_line_of_another_shape_is_refused_with_what_is_wrong(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = write_lines(tmp_path / "log.jsonl", [call(1), {**call(2), **changes}, call(3)])
    good, bad, after = list(Recorder().split(path))
    assert isinstance(good, SourceRecord) and isinstance(after, SourceRecord)
    assert isinstance(bad, BadRecord)
    assert (bad.reason, bad.line) == ("wrong_shape", 2)
    assert said in bad.detail
