"""What LiteLLM's proxy logs of a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import BadRecord, SourceRecord
from pipelines.landing.litellm import LiteLLM
from tests.landing.formats.chat_lines import ASK, SYSTEM, completion, conversation, said
from tests.landing.formats.reading import of_text, read
from tests.landing.lines import attempts, line, write_lines


def spend_row(id: str = "1", **changes: Any) -> dict[str, Any]:
    return {
        "request_id": f"chatcmpl-{id}",
        "session_id": "7f1d3f62-2c6b-4d3e-9c8f-0a1b2c3d4e5f",
        "call_type": "acompletion",
        "cache_hit": "None",
        "startTime": "2026-11-20 10:00:00.5",
        "endTime": "2026-11-20 10:00:01",
        "model": "gpt-x",
        "metadata": "{}",
        "spend": 0.25,
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "messages": json.dumps([SYSTEM, ASK]),
        "response": json.dumps(completion(f"chatcmpl-{id}", said("a"))),
        "proxy_server_request": "{}",
        "status": "success",
        **changes,
    }


def payload(**changes: Any) -> dict[str, Any]:
    row = spend_row(messages=[SYSTEM, ASK], response=completion("chatcmpl-1", said("a")), metadata={}, **changes)
    return {**row, "id": row.pop("request_id"), "response_cost": row.pop("spend"), "model_parameters": {"tools": [{"name": "t"}]}}


FORMAT = LiteLLM()
FILES = [line(spend_row()), json.dumps(payload(), indent=2).encode(), json.dumps([spend_row()]).encode()]
FOLDERS = {"litellm_logs"}


@pytest.mark.parametrize("value", [spend_row(), payload()])
def test_both_layouts_say_the_same(value: dict[str, Any], tmp_path: Path) -> None:
    (attempt,), bad = of_text(FORMAT, tmp_path / "log", json.dumps(value, indent=1))
    assert not bad and [(turn["role"], turn["sampled"]) for turn in attempt.turns] == [
        ("system", False),
        ("user", False),
        ("assistant", True),
    ]
    assert (attempt.cost_usd, attempt.num_prompt_tokens, attempt.model) == (0.25, 10, "model-1")
    assert attempt.started_at is not None and attempt.started_at.isoformat() == "2026-11-20T10:00:00.500000+00:00"


def test_tools_come_from_where_they_are() -> None:
    (attempt,) = attempts(FORMAT, payload())
    assert attempt.tools == [{"name": "t"}]
    (attempt,) = attempts(FORMAT, spend_row(messages="{}", proxy_server_request=json.dumps({"messages": [ASK], "tools": [1]})))
    assert attempt.tools == [1] and [turn["role"] for turn in attempt.turns] == ["user", "assistant"]


def test_a_row_without_stored_prompts_is_refused_with_what_to_do(tmp_path: Path) -> None:
    bad, good = FORMAT.split(write_lines(tmp_path / "log", [spend_row(messages="{}", response="{}"), spend_row()]))
    assert isinstance(bad, BadRecord) and "store_prompts_in_spend_logs" in bad.detail
    assert isinstance(good, SourceRecord)


def test_sessions_that_the_proxy_made_up_bind_nothing(tmp_path: Path) -> None:
    rows = [
        spend_row("1"),
        spend_row("2", session_id="my-run"),
        spend_row("3", metadata=json.dumps({"requester_metadata": {"session_id": "theirs"}})),
    ]
    refs = [piece.bundle_ref for piece in FORMAT.split(write_lines(tmp_path / "log", rows)) if isinstance(piece, SourceRecord)]
    assert str(refs[0]).startswith("root:") and refs[1:] == ["conversation:my-run", "conversation:theirs"]


def test_calls_are_stitched() -> None:
    calls = conversation("a", "b")
    rows = [
        spend_row(str(n), messages=json.dumps(call["request"]["messages"]), response=json.dumps(call["response"]))
        for n, call in enumerate(calls)
    ]
    (attempt,) = attempts(FORMAT, *reversed(rows))
    assert (attempt.num_sampled_turns, attempt.cost_usd) == (2, 0.5)


def test_a_failure_is_a_fault() -> None:
    (attempt,) = attempts(FORMAT, spend_row(response="{}", status="failure"))
    assert (attempt.fault, attempt.num_sampled_turns) == ("model_error", 0)


def test_anthropics_words_pass_through() -> None:
    answer = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "a"}],
        "stop_reason": "end_turn",
    }
    (attempt,) = attempts(FORMAT, spend_row(response=json.dumps(answer)))
    assert attempt.turns[-1]["content"] == "a" and attempt.turns[-1]["sampled"]


def test_real_files_are_read(shared_logs: Path) -> None:
    found, bad = read(FORMAT, *sorted((shared_logs / "litellm_logs").iterdir()))
    assert [[turn["content"] for turn in attempt.turns] for attempt in found] == [["Hello, world!", "hi"]]
    assert [one.reason for one in bad] == ["wrong_shape"] and found[0].cost_usd == pytest.approx(0.000225)
