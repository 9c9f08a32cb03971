"""How nightshift calls your agent. Name it in nightshift.toml: `[harness] entry = "harness.py:rollout"`."""

from __future__ import annotations

from typing import Any


async def rollout(task: dict[str, Any], client: Any) -> None:
    """One attempt at one task of your task file.

    `client.chat(messages, tools=…, max_tokens=…)` answers with the assistant message of the policy under test and records
    the call with its exact tokens. Call it as often as your agent needs; what it did is what gets evaluated.
    """
    messages = [
        {"role": "system", "content": "Answer in one line."},
        {"role": "user", "content": task["question"]},
    ]
    await client.chat(messages, max_tokens=256)
