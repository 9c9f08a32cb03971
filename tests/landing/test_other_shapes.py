"""Files of other versions, for every format: what `split` lets through, `spell` and `attempts` can read, whatever is missing
or of another type. What is not let through is refused with a word; there is never an exception.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipelines.ids import canonical_json
from pipelines.landing.format import Attempt
from pipelines.landing.head import Head
from pipelines.reasons import FAULTS, LINKS, PURPOSES
from pipelines.trajectories import said
from tests.landing.bundles import read
from tests.landing.formats import test_cline, test_hermes, test_opencode, test_openhands
from tests.landing.lines import line
from tests.landing.test_registry import MODULES

STRANGE: list[Any] = [None, 5, -1.5, True, "", "x", [], [1], {}, {"type": "text"}, [[]], ["a", {"b": None}], [{}], [None]]
STRANGE += [{"a": 1}, 1 << 63, 10**25, "2026-13-45", "NaN", "{", "[1]"]
NUM_CHANGES = 40


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.FORMAT.name)
def test_what_is_let_through_can_be_read(tmp_path: Path, module: Any) -> None:
    chance = random.Random(module.FORMAT.name)
    folder = tmp_path / "part" / "msg_1"  # some formats tell a file by its folder
    folder.mkdir(parents=True)
    num_read = num_tried = 0
    for number, content in enumerate(module.FILES):
        if (rows := rows_of(content)) is None:
            continue
        for change in range(NUM_CHANGES):
            path = folder / f"{number}-{change}.json"
            path.write_bytes(written(changed(rows, chance), is_document=not content.endswith(b"\n") and len(rows) == 1))
            if not module.FORMAT.detect(Head(path)):
                continue
            found = read(module.FORMAT, [path])
            assert {bad.reason for bad in found.bad} <= {"wrong_shape"}
            for attempt in found.attempts:
                hold(attempt)
            num_tried, num_read = num_tried + 1, num_read + bool(found.attempts)
    assert num_tried == 0 or num_read > num_tried / 8


def rows_of(content: bytes) -> list[Any] | None:
    """The values of a file of JSON; None where it is another kind of file."""
    try:
        return [orjson.loads(content)]
    except orjson.JSONDecodeError:
        pass
    try:
        return [orjson.loads(row) for row in content.splitlines()]
    except orjson.JSONDecodeError:
        return None


def written(rows: list[Any], *, is_document: bool) -> bytes:
    return json.dumps(rows[0], indent=2).encode() if is_document else b"".join(line(row) for row in rows)


def changed(rows: list[Any], chance: random.Random) -> list[Any]:
    """The rows with a few values lost or of another type."""
    rows = copy.deepcopy(rows)
    for _ in range(chance.choice([1, 1, 2, 3])):
        places = list(everywhere(rows))
        holder, key = chance.choice(places[1:] or places)
        if isinstance(holder, dict) and chance.random() < 0.3:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(chance.choice(STRANGE))
    return rows


def everywhere(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from everywhere(value[key])


def hold(attempt: Attempt) -> None:
    """What was made of it is what the lake's columns hold."""
    texts = (attempt.harness, attempt.task_id, attempt.model, attempt.policy_version, attempt.snapshot, attempt.outcome_source)
    assert all(isinstance(text, str | None) for text in texts)
    numbers = (attempt.attempt, attempt.num_prompt_tokens, attempt.num_reply_tokens)
    assert all(number is None or (isinstance(number, int) and number < 1 << 63) for number in numbers)
    assert isinstance(attempt.outcome, float | None) and isinstance(attempt.cost_usd, float | None)
    assert attempt.fault in (None, *FAULTS) and attempt.link in (None, *LINKS) and attempt.purpose in PURPOSES
    canonical_json([attempt.turns, attempt.calls, attempt.tools, said(attempt.turns), attempt.exact_tokens])
    for turn in attempt.turns:
        assert isinstance(turn["role"], str) and isinstance(turn["content"], str | list | None)
        for call in turn.get("tool_calls", ()):
            assert isinstance(call["function"]["arguments"], str)


def test_files_whose_beginning_is_cut_are_known(tmp_path: Path) -> None:
    """`detect` sees a megabyte: a row or document may be longer than that."""
    filling = "x" * (3 << 20)
    row = {**test_openhands.ROW, "history": [{**test_openhands.HISTORY[1], "message": filling}, *test_openhands.HISTORY]}
    messages = [test_cline.message(0, "user", filling), *test_cline.MESSAGES]
    sdk = {"version": 1, "agent": "lead", "sessionId": "s", "messages": messages, "system_prompt": "You are Cline."}
    session = {**test_hermes.SESSION, "messages": [{"role": "user", "content": filling}]}
    cases: list[tuple[Any, bytes]] = [
        (test_openhands.FORMAT, line(row)),
        (test_openhands.FORMAT, json.dumps([test_openhands.HISTORY[0], *row["history"]], indent=1).encode()),
        (test_cline.FORMAT, json.dumps(sdk, indent=1).encode()),
        (test_cline.FORMAT, json.dumps([test_cline.MESSAGES[0], *messages]).encode()),
        (test_hermes.FORMAT, json.dumps(session, indent=1).encode()),
        (test_opencode.FORMAT, json.dumps({**test_opencode.PARTS[0], "text": filling}).encode()),
    ]
    for number, (format, content) in enumerate(cases):
        path = tmp_path / f"{number}.json"
        path.write_bytes(content)
        assert format.detect(Head(path)), number
        assert len(read(format, [path]).bundles) == 1
