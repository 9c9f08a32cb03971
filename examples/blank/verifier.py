"""How nightshift learns whether an attempt was right. Name it in nightshift.toml: `entry = "verifier.py:verify"`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).with_name("answers.json")


def verify(task_id: str, turns: list[dict[str, Any]]) -> float | None:
    """Score in [0, 1] of one attempt, or None where this verifier cannot tell (that is no failed attempt)."""
    if not ANSWERS.exists():
        return None
    expected = json.loads(ANSWERS.read_text(encoding="utf-8")).get(task_id)
    if expected is None:
        return None
    answers = [turn["content"] for turn in turns if turn["role"] == "assistant" and turn.get("content")]
    return 1.0 if answers and answers[-1].strip() == expected else 0.0
