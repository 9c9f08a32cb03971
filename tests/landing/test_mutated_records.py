"""Records of other shapes than any file here shows: refused with a word, or read by stage 2; never an exception."""

from __future__ import annotations

import copy
import json
import random
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipelines.ids import canonical_json
from pipelines.landing.format import Attempt, LogFormat, SourceRecord
from pipelines.reasons import FAULTS, LINKS, PURPOSES, SKIP_REASONS
from pipelines.trajectories import said
from tests.landing.lines import stored

FORMATS = ("atif", "inspect_ai", "mini_swe_agent", "nemo_gym", "swe_agent", "tau2_bench")
"""Of which whole JSON files are held against this."""

MODULES = [import_module(f"tests.landing.formats.test_{name}") for name in FORMATS]
ODD = [None, 5, -1, "x", "", [], {}, [1], {"a": 1}, True, 0.5, [{}], [[]], [None], 1 << 63, 10**25, "2026-13-45", "NaN"]
NUM_TRIES = 250


@pytest.mark.parametrize("module", MODULES, ids=FORMATS)
def test_odd_values_anywhere(module: Any, tmp_path: Path) -> None:
    chosen = random.Random(module.FORMAT.name)
    whole = [line for content in module.FILES for line in (content, content.split(b"\n", 1)[0]) if is_json(line)]
    names = [f"{number}.json" for number in range(len(whole))]
    num_read = 0
    for _ in range(NUM_TRIES):
        which = chosen.randrange(len(whole))
        value = orjson.loads(whole[which])
        for _ in range(chosen.choice([1, 1, 2, 3])):
            value = changed(value, chosen)
        path = tmp_path / names[which]
        path.write_text(json.dumps(value), encoding="utf-8")
        for piece in module.FORMAT.split(path):
            if isinstance(piece, SourceRecord):
                num_read += 1
                hold(module.FORMAT, piece)
    assert num_read > NUM_TRIES / 4


def is_json(content: bytes) -> bool:
    try:
        orjson.loads(content)
    except orjson.JSONDecodeError:
        return False
    return True


def changed(value: Any, chosen: random.Random) -> Any:
    """The value with an odd one in one of its places, or without that place."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        around = waiting.pop()
        inner = around.items() if isinstance(around, dict) else enumerate(around) if isinstance(around, list) else ()
        for key, kept in inner:
            places.append((around, key))
            waiting.append(kept)
    if not places:
        return value
    around, key = chosen.choice(places)
    if isinstance(around, dict) and chosen.random() < 0.2:
        del around[key]
    else:
        around[key] = copy.deepcopy(chosen.choice(ODD))
    return value


def hold(format: LogFormat, piece: SourceRecord) -> None:
    """Stage 2 can read what landing let through, and what it makes of it is what the lake's columns hold."""
    assert piece.skip_reason is None or piece.skip_reason in SKIP_REASONS
    assert isinstance(piece.bundle_ref, str | None) and isinstance(piece.vendor_id, str | None)
    if piece.skip_reason is not None:
        return
    for attempt in format.attempts(stored(format, piece.value)).attempts:
        columns(attempt)
        canonical_json([attempt.turns, attempt.calls, attempt.tools, said(attempt.turns), attempt.exact_tokens])
        for turn in attempt.turns:
            assert isinstance(turn["role"], str)
            assert isinstance(turn["content"], str | list | None)
            assert all(isinstance(turn.get(name), str | None) for name in ("tool_call_id", "name", "reasoning"))
            for call in turn.get("tool_calls", ()):
                assert isinstance(call["function"]["name"], str | None) and isinstance(call["function"]["arguments"], str)


def columns(attempt: Attempt) -> None:
    texts = (attempt.harness, attempt.task_id, attempt.model, attempt.policy_version, attempt.snapshot, attempt.outcome_source)
    assert all(isinstance(text, str | None) for text in texts)
    numbers = (attempt.attempt, attempt.num_prompt_tokens, attempt.num_reply_tokens)
    assert all(number is None or (isinstance(number, int) and number < 1 << 63) for number in numbers)
    assert isinstance(attempt.outcome, float | None) and isinstance(attempt.cost_usd, float | None)
    assert attempt.fault in (None, *FAULTS) and attempt.link in (None, *LINKS) and attempt.purpose in PURPOSES
