"""Files read as landing and the trajectories stage read them: pieces, bundles, attempts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from pipelines.ids import Identity
from pipelines.landing.format import Attempt, BadRecord, LogFormat, SourceRecord, StoredRecord
from pipelines.landing.spelling import with_identities
from pipelines.reasons import DUPLICATE_KINDS, FAULTS, LINKS, SKIP_REASONS

IDENTITY = Identity(b"identity of the tests")


def records_of(format: LogFormat, *paths: Path) -> list[SourceRecord]:
    """The records of some files; bad pieces are not expected."""
    records = []
    for path in paths:
        for piece in format.split(path):
            assert isinstance(piece, SourceRecord), piece
            assert piece.skip_reason is None or piece.skip_reason in SKIP_REASONS
            records.append(piece)
    return records


def bad_of(format: LogFormat, path: Path) -> list[BadRecord]:
    return [piece for piece in format.split(path) if isinstance(piece, BadRecord)]


def attempts_of(format: LogFormat, *paths: Path) -> dict[str, list[Attempt]]:
    """Attempts by the bundle's ref; checks that each record has one place, and that their order does not matter."""
    bundles: dict[str, dict[str, StoredRecord]] = {}
    for record in records_of(format, *paths):
        if record.skip_reason is not None:
            continue
        record_id = IDENTITY.of("record", record.vendor_id or "", record.content)
        spelled = format.spell(record.value)
        with_identities(IDENTITY, spelled, None)
        stored = StoredRecord(record_id=record_id, value=record.value, spelled=spelled)
        bundles.setdefault(record.bundle_ref or record_id, {})[record_id] = stored
    return {ref: _attempts(format, list(records.values())) for ref, records in bundles.items()}


def one(format: LogFormat, *paths: Path) -> Attempt:
    """The only attempt of some files."""
    (attempts,) = attempts_of(format, *paths).values()
    (attempt,) = attempts
    return attempt


def told(attempt: Attempt) -> list[tuple[str, bool, object]]:
    """Role, sampled and content of each turn."""
    return [(turn["role"], turn["sampled"], turn["content"]) for turn in attempt.turns]


def _attempts(format: LogFormat, records: Sequence[StoredRecord]) -> list[Attempt]:
    bundle = format.attempts(records)
    for seed in range(3):
        shuffled = list(records)
        random.Random(seed).shuffle(shuffled)
        assert format.attempts(shuffled) == bundle
    placed = {record_id for attempt in bundle.attempts for record_id in attempt.record_ids}
    assert not placed & bundle.left.keys()
    assert placed | bundle.left.keys() == {record.record_id for record in records}
    refs = [attempt.ref for attempt in bundle.attempts]
    assert len(set(refs)) == len(refs)
    for ref, kind in bundle.left.values():
        assert kind in DUPLICATE_KINDS and (ref is None or ref in refs)
    for attempt in bundle.attempts:
        assert attempt.record_ids and (attempt.parent_ref is None or attempt.parent_ref in refs)
        assert attempt.link is None or attempt.link in LINKS
        assert attempt.fault is None or attempt.fault in FAULTS
        assert all(turn.get("id") for turn in attempt.turns)
        assert [turn["call"] for turn in attempt.turns if turn["sampled"]] == list(range(len(attempt.calls)))
        assert all(turn["role"] == "assistant" for turn in attempt.turns if turn["sampled"])
        assert not any(turn["sampled"] for turn in attempt.turns[: attempt.num_shared_turns])
    return bundle.attempts
