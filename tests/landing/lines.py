"""Log lines in the shape that the tools write, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.ids import Identity
from pipelines.landing.format import Attempt, LogFormat, StoredRecord
from pipelines.landing.spelling import with_identities


def call(number: int, **changes: Any) -> dict[str, Any]:
    """One recorder line: attempt `number`, its only call, on 2026-11-20 unless changed."""
    return {
        "recorder": 1,
        "kind": "call",
        "call_id": f"call-{number}",
        "attempt_id": f"attempt-{number}",
        "harness": "order_desk",
        "task_id": f"task-{number // 4}",
        "attempt": number % 4,
        "purpose": "production",
        "policy_version": "nightshift-order-desk@0",
        "model": "SmolLM2-135M-Instruct",
        "request": {
            "messages": [
                {"role": "system", "content": "Reply with the order number."},
                {"role": "user", "content": f"Where is {number}?"},
            ],
            "tools": None,
            "sampling": {"temperature": 1.0, "max_tokens": 12, "seed": number},
        },
        "response": {
            "message": {"role": "assistant", "content": f"ORDER: {number}", "tool_calls": None},
            "finish_reason": "stop",
        },
        "prompt_token_ids": [1, 2, 3],
        "token_ids": [4, 5],
        "logprobs": [-0.5, -0.25],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        "started_at": "2026-11-20T10:00:00Z",
        "ended_at": "2026-11-20T10:00:01Z",
        "outcome": None,
        "fault": None,
        **changes,
    }


def item(number: int, reward: float = 1.0, **changes: Any) -> dict[str, Any]:
    """One item of a tau-bench results file."""
    tool_call = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": f'{{"order": {number}}}'}}
    return {
        "task_id": number // 4,
        "reward": reward,
        "info": {"task": {"instruction": "You want your order."}, "source": "user", "user_cost": 0.001},
        "traj": [
            {"role": "system", "content": "# Policy"},
            {"role": "user", "content": f"Order {number // 4}, please."},
            {"role": "assistant", "content": None, "tool_calls": [tool_call]},
            {"role": "tool", "tool_call_id": "call_1", "name": "look_up", "content": f"found {number}"},
            {"role": "assistant", "content": f"Here is {number}."},
            {"role": "user", "content": "###STOP###"},
        ],
        "trial": number % 4,
        **changes,
    }


def stored(format: LogFormat, *values: Any) -> list[StoredRecord]:
    """Values as `attempts` gets them, under a fixed identity key; records are named rec-0, rec-1, …"""
    identity = Identity(b"identity of the tests")
    records = []
    for number, value in enumerate(values):
        spelled = format.spell(value)
        with_identities(identity, spelled, None)
        records.append(StoredRecord(record_id=f"rec-{number}", value=value, spelled=spelled, byte_start=number))
    return records


def attempts(format: LogFormat, *values: Any) -> list[Attempt]:
    """The attempts of one bundle; checks that every record has exactly one place."""
    bundle = format.attempts(stored(format, *values))
    placed = [record_id for attempt in bundle.attempts for record_id in dict.fromkeys(attempt.record_ids)]
    assert not set(placed) & set(bundle.left)
    assert {*placed, *bundle.left} == {f"rec-{number}" for number in range(len(values))}
    assert len({attempt.ref for attempt in bundle.attempts}) == len(bundle.attempts)
    return bundle.attempts


def line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def write_lines(path: Path, values: list[Any]) -> Path:
    """JSONL; bytes are written as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(value if isinstance(value, bytes) else line(value) for value in values))
    return path
