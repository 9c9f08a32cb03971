"""Lines of logged chat calls in the shape that gateways write, for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pipelines.landing.format import Attempt, LogFormat
from tests.landing.lines import attempts

SYSTEM = {"role": "system", "content": "Mend the program."}
ASK = {"role": "user", "content": "It prints 5 and should print 6."}


def tool_call(name: str = "look", arguments: Any = '{"at": 1}', id: str = "t1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def said(text: str | None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def told(text: str, id: str = "t1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


def completion(id: str, *messages: dict[str, Any], created: int = 1_790_000_000, **changes: Any) -> dict[str, Any]:
    """A chat completion with one choice per message."""
    return {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": "model-1",
        "choices": [
            {"index": index, "message": message, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}
            for index, message in enumerate(messages)
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2},
        **changes,
    }


def logged(id: str, prompt: list[dict[str, Any]], *answers: dict[str, Any], at: int = 0, **changes: Any) -> dict[str, Any]:
    """One call as request and response."""
    request = {"model": "model-1", "messages": prompt}
    return {"request": request, "response": completion(id, *answers, created=1_790_000_000 + at), **changes}


def conversation(*texts: str, prompt: Sequence[dict[str, Any]] = (SYSTEM, ASK), name: str = "c") -> list[dict[str, Any]]:
    """Calls that go on from each other: every answer is sent back with a tool's word."""
    turns, calls = list(prompt), []
    for number, text in enumerate(texts):
        answer = said(text, tool_calls=[tool_call()])
        calls.append(logged(f"{name}-{number}", list(turns), answer, at=number))
        turns += [answer, told(f"seen {text}")]
    return calls


def without_records(found: Sequence[Attempt]) -> list[Attempt]:
    """For comparing what was made of the same lines under other record ids."""
    return sorted((dataclasses.replace(attempt, record_ids=[]) for attempt in found), key=lambda attempt: attempt.ref)


def shape(format: LogFormat, *values: Any) -> list[list[tuple[str, int | None]]]:
    """Who spoke and which call sampled it, per attempt."""
    return [[(turn["role"], turn["call"]) for turn in attempt.turns] for attempt in attempts(format, *values)]
