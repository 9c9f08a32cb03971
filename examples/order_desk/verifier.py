"""The order desk's test of an answer: it knows the right number of every ticket, which neither agent nor judge ever sees.

1.0    exactly `ORDER: <number>`, and the model ended its answer there
else   .2 for starting with `ORDER:`, .3 for naming the right number somewhere, .1 for the shape `ORDER: <5 digits>`;
       all of it times .3 where the model did not end its answer but was cut off
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

TRUTH = Path(__file__).with_name("truth.jsonl")
"""{task_id, answer} per line, beside this file in the workspace."""


def verify(task_id: str, turns: list[dict[str, Any]]) -> float | None:
    """Score in [0, 1] of the last answer; None for a ticket that is not in the truth file or an attempt without an answer."""
    number = _numbers(TRUTH.stat().st_mtime_ns).get(task_id)
    answers = [turn for turn in turns if turn["role"] == "assistant" and turn.get("sampled", True)]
    if number is None or not answers:
        return None
    return grade(answers[-1].get("content") or "", number, ended=answers[-1].get("finish_reason") == "stop")


def grade(answer: str, number: str, *, ended: bool) -> float:
    """Score of one answer text; `ended`: its end token was sampled."""
    if answer == f"ORDER: {number}" and ended:
        return 1.0
    score = 0.2 * answer.startswith("ORDER:") + 0.3 * (number in answer) + 0.1 * bool(re.match(r"ORDER: \d{5}\b", answer))
    return round(score * (1.0 if ended else 0.3), 6)


@lru_cache(maxsize=2)
def _numbers(changed: int) -> dict[str, str]:
    with TRUTH.open(encoding="utf-8") as lines:
        return {row["task_id"]: row["answer"] for row in map(json.loads, lines)}
