"""The order desk's agent: one ticket in, one answer out. nightshift calls `rollout`; production would, too."""

from __future__ import annotations

from typing import Any

SYSTEM = "Reply with only ORDER: and the order number."
EXAMPLE_TICKET = "Parcel 48213 is late."
EXAMPLE_ANSWER = "ORDER: 48213"
MAX_TOKENS = 12


async def rollout(task: dict[str, Any], client: Any) -> None:
    """Answer one ticket ({task_id, ticket}) through the recording client."""
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": EXAMPLE_TICKET},
        {"role": "assistant", "content": EXAMPLE_ANSWER},
        {"role": "user", "content": task["ticket"]},
    ]
    await client.chat(messages, max_tokens=MAX_TOKENS)
