"""Files of other versions: what `split` lets through, `spell` and `attempts` can read, whatever is missing or of another type."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipelines.ids import Identity, canonical_json
from pipelines.landing.format import BadRecord, SourceRecord, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.spelling import with_identities
from tests.landing.formats import (
    test_cline,
    test_cursor_cli,
    test_droid_cli,
    test_hermes,
    test_kimi_cli,
    test_opencode,
    test_openhands,
    test_openhands_sdk,
    test_pi_agent,
)
from tests.landing.lines import line

MODULES = [
    test_cline,
    test_cursor_cli,
    test_droid_cli,
    test_hermes,
    test_kimi_cli,
    test_opencode,
    test_openhands,
    test_openhands_sdk,
    test_pi_agent,
]
IDENTITY = Identity(b"identity of the tests")
STRANGE: list[Any] = [None, 5, -1.5, True, "", "x", [], [1], {}, {"type": "text"}, [[]], ["a", {"b": None}]]
NUM_CHANGES = 60


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.FORMAT.name)
def test_what_is_let_through_can_be_read(tmp_path: Path, module: Any) -> None:
    chance = random.Random(module.FORMAT.name)
    num_read = 0
    for number, content in enumerate(module.FILES):
        for change in range(NUM_CHANGES):
            folder = tmp_path / "part" / "msg_1"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{number}-{change}.json"
            path.write_bytes(changed(content, chance))
            num_read += read(module.FORMAT, path)
    assert num_read > NUM_CHANGES / 4


def read(format: Any, path: Path) -> int:
    bundles: dict[str, dict[str, StoredRecord]] = {}
    if not format.detect(Head(path)):
        return 0
    pieces = list(format.split(path))
    assert {piece.reason for piece in pieces if isinstance(piece, BadRecord)} <= {"wrong_shape"}
    for record in pieces:
        if not isinstance(record, SourceRecord) or record.skip_reason is not None:
            continue
        value = orjson.loads(canonical_json(record.value))  # as the lake gives it back
        spelled = format.spell(value)
        with_identities(IDENTITY, spelled, None)
        canonical_json([spelled.turns, spelled.tools, spelled.task_id, spelled.snapshot])
        record_id = IDENTITY.of("record", record.vendor_id or "", record.content)
        stored = StoredRecord(record_id=record_id, value=value, spelled=spelled)
        bundles.setdefault(record.bundle_ref or record_id, {})[record_id] = stored
    for records in bundles.values():
        bundle = format.attempts(list(records.values()))
        assert bundle == format.attempts(list(records.values())[::-1])
        placed = {record_id for attempt in bundle.attempts for record_id in attempt.record_ids}
        assert placed | bundle.left.keys() == records.keys() and not placed & bundle.left.keys()
        for attempt in bundle.attempts:
            canonical_json([attempt.turns, attempt.calls])
            assert all(turn["role"] == "assistant" for turn in attempt.turns if turn["sampled"])
    return len(bundles)


def changed(content: bytes, chance: random.Random) -> bytes:
    """The file with a few values lost or of another type."""
    is_document = not content.endswith(b"\n")
    rows: list[Any] = [orjson.loads(content)] if is_document else [orjson.loads(row) for row in content.splitlines()]
    rows = copy.deepcopy(rows)
    for _ in range(chance.randint(1, 3)):
        places = list(everywhere(rows))
        holder, key = chance.choice(places[1:] or places)
        if isinstance(holder, dict) and chance.random() < 0.3:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(chance.choice(STRANGE))
    return json.dumps(rows[0], indent=2).encode() if is_document and rows else b"".join(line(row) for row in rows)


def everywhere(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from everywhere(value[key])


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
        assert read(format, path) == 1
