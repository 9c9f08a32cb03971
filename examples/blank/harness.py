"""How nightshift calls your agent. Name it in nightshift.toml: `[harness] entry = "harness.py:rollout"`."""

from __future__ import annotations

from typing import Any


async def rollout(task: dict[str, Any], client: Any) -> float | None:
    """One attempt at one task.

    `task` is a line of your task file ({task_id, …}: evaluations, and top-ups of tasks that [top_up] tasks holds), or, in a
    top-up of anything else, what production asked as it was logged: `task_id` (None where your log names no task), `messages`
    (system prompt and first request) and `tools`. Ask it as production does: under another system prompt or other tools it
    is no sibling of what was logged.

    `client.chat(messages, tools=…, max_tokens=…)` answers with the assistant message of the policy under test and records
    the call with its exact tokens. Call it as often as your agent needs; what it did is what gets evaluated. Return the
    outcome, 0.0 to 1.0, where you know it; None leaves that to the verifiers.
    """
    messages = task.get("messages") or [
        {"role": "system", "content": "Answer in one line."},
        {"role": "user", "content": task["question"]},
    ]
    await client.chat(messages, tools=task.get("tools"), max_tokens=256)
    return None
