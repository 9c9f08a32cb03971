"""Files of other versions: anything may be missing, null or of another type, and costs at most its own record."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import BadRecord, LogFormat, SourceRecord, Unfinished
from tests.landing.formats import (
    test_anthropic_messages,
    test_litellm,
    test_openai_chat,
    test_openai_finetune,
    test_openai_responses,
    test_openai_stream,
    test_openhands_completions,
    test_sharegpt,
    test_vcr_cassette,
)
from tests.landing.lines import stored, write_lines

MODULES = [
    test_anthropic_messages,
    test_litellm,
    test_openai_chat,
    test_openai_finetune,
    test_openai_responses,
    test_openai_stream,
    test_openhands_completions,
    test_sharegpt,
    test_vcr_cassette,
]
STRANGE = [None, 5, -1.5, "", "x", [], {}, [None], {"a": 1}, True, [[1]], 1 << 70, "{", "[1]"]


def changed(value: Any, chance: random.Random, rate: float) -> Any:
    """The value with some of its parts replaced or missing."""
    if chance.random() < rate:
        return chance.choice(STRANGE)
    if isinstance(value, dict):
        kept = {name: changed(held, chance, rate) for name, held in value.items() if chance.random() > rate / 3}
        return kept
    if isinstance(value, list):
        return [changed(held, chance, rate) for held in value]
    return value


def samples(format: LogFormat, files: list[bytes], folder: Path) -> list[Any]:
    found = []
    for number, content in enumerate(files):
        path = folder / f"sample-{number}"
        path.write_bytes(content)
        found += [piece.value for piece in format.split(path) if isinstance(piece, SourceRecord)]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.FORMAT.name)
def test_what_split_lets_through_can_be_read(module: Any, tmp_path: Path) -> None:
    format, chance = module.FORMAT, random.Random(7)
    values = samples(format, module.FILES, tmp_path)
    if format.name == "vcr_cassette":
        values = [item for content in module.FILES[1:2] for item in json.loads(content)["interactions"]]
    if format.name == "openai_stream":
        values = test_openai_stream.stream("1")
    num_read = 0
    for number in range(60):
        rows = [changed(value, chance, 0.002 + 0.001 * (number % 30)) for value in values * 2]
        path = tmp_path / "log"
        if format.name == "vcr_cassette":
            path.write_text(json.dumps({"interactions": [values[0], *rows]}))
        else:
            write_lines(path, [values[0], *rows])
        bundles: dict[Any, list[Any]] = defaultdict(list)
        for piece in format.split(path):
            assert isinstance(piece, SourceRecord | BadRecord | Unfinished)
            if isinstance(piece, SourceRecord) and piece.skip_reason is None:
                bundles[piece.bundle_ref or piece.content].append(piece.value)
        for held in bundles.values():
            records = [
                dataclasses.replace(record, record_id=hashlib.sha256(json.dumps(record.value).encode()).hexdigest())
                for record in stored(format, *held)
            ]
            records = list({record.record_id: record for record in records}.values())
            found = format.attempts(records)
            placed = {record_id for attempt in found.attempts for record_id in attempt.record_ids}
            assert not placed & set(found.left)
            assert placed | set(found.left) == {record.record_id for record in records}
            assert len({attempt.ref for attempt in found.attempts}) == len(found.attempts)
            num_read += len(found.attempts)
            chance.shuffle(records)
            assert format.attempts(records) == found
    assert num_read > 50
