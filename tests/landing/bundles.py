"""Files read as the product reads them, bundle by bundle, without a lake."""

from __future__ import annotations

import copy
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.ids import Identity
from pipelines.landing.format import Attempt, BadRecord, Bundle, LogFormat, SourceRecord, StoredRecord
from pipelines.landing.head import Head
from pipelines.landing.spelling import with_identities
from pipelines.reasons import DUPLICATE_KINDS, FAULTS, LINKS, SKIP_REASONS
from tests.landing.lines import line

IDENTITY = Identity(b"identity of the tests")


@dataclass(kw_only=True)
class Read:
    bundles: dict[str, Bundle] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    bad: list[BadRecord] = field(default_factory=list)
    refused: list[Path] = field(default_factory=list)

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for bundle in self.bundles.values() for attempt in bundle.attempts]

    @property
    def left(self) -> Counter[str]:
        return Counter(kind for bundle in self.bundles.values() for _, kind in bundle.left.values())


def read(format: LogFormat, paths: Iterable[Path], *, any_name: bool = False) -> Read:
    """All files together, those that are not of the format refused unless `any_name`; checks that every record has exactly one place. A record is named by its content."""
    found = Read()
    stored: dict[str, dict[str, StoredRecord]] = defaultdict(dict)
    for path in paths:
        head = Head(path)
        if head.is_empty:
            continue
        if not any_name and not format.detect(head):
            found.refused.append(path)
            continue
        for piece in format.split(path):
            if isinstance(piece, BadRecord):
                found.bad.append(piece)
            elif isinstance(piece, SourceRecord):
                assert piece.skip_reason is None or piece.skip_reason in SKIP_REASONS
                if piece.skip_reason is not None:
                    found.skipped[piece.skip_reason] += 1
                    continue
                record_id = IDENTITY.of("record", piece.content)
                spelled = format.spell(piece.value)
                with_identities(IDENTITY, spelled, None)
                record = StoredRecord(
                    record_id=record_id, value=piece.value, spelled=spelled, source=path.name, byte_start=piece.byte_start
                )
                stored[piece.bundle_ref or record_id].setdefault(record_id, record)
    for ref, records in stored.items():
        found.bundles[ref] = bundle_of(format, list(records.values()))
    return found


def bundle_of(format: LogFormat, records: Sequence[StoredRecord]) -> Bundle:
    bundle = format.attempts(records)
    assert format.attempts(list(records)[::-1]) == bundle
    placed = [record_id for attempt in bundle.attempts for record_id in attempt.record_ids]
    assert not set(placed) & bundle.left.keys()
    assert {*placed, *bundle.left} == {record.record_id for record in records}
    refs = {attempt.ref for attempt in bundle.attempts}
    assert len(refs) == len(bundle.attempts)
    assert {attempt.parent_ref for attempt in bundle.attempts} <= {*refs, None}
    for ref, kind in bundle.left.values():
        assert kind in DUPLICATE_KINDS and (ref is None or ref in refs)
    for attempt in bundle.attempts:
        assert attempt.record_ids and attempt.parent_ref != attempt.ref
        assert attempt.link in (None, *LINKS) and attempt.fault in (None, *FAULTS)
        assert all(turn.get("id") for turn in attempt.turns)
        assert not any(turn["sampled"] for turn in attempt.turns[: attempt.num_shared_turns])
        calls = {turn["call"] for turn in attempt.turns if turn["sampled"]}
        assert calls <= set(range(len(attempt.calls)))
        assert all(turn["role"] == "assistant" for turn in attempt.turns if turn["sampled"])
    return bundle


def roles(attempt: Attempt) -> str:
    """First letters of the turns' roles; capital where sampled."""
    return "".join(turn["role"][0].upper() if turn["sampled"] else turn["role"][0] for turn in attempt.turns)


def told(attempt: Attempt) -> list[tuple[str, bool, object]]:
    """Role, sampled and content of each turn."""
    return [(turn["role"], turn["sampled"], turn["content"]) for turn in attempt.turns]


def attempts_of(format: LogFormat, *paths: Path) -> dict[str, list[Attempt]]:
    """Attempts by the bundle's ref; bad pieces are not expected."""
    found = read(format, paths, any_name=True)
    assert not found.bad
    return {ref: bundle.attempts for ref, bundle in found.bundles.items()}


def one(format: LogFormat, *paths: Path) -> Attempt:
    """The only attempt of some files."""
    (attempts,) = attempts_of(format, *paths).values()
    (attempt,) = attempts
    return attempt


def records_of(format: LogFormat, *paths: Path) -> list[SourceRecord]:
    """The records of some files; bad pieces are not expected."""
    pieces = [piece for path in paths for piece in format.split(path)]
    assert all(isinstance(piece, SourceRecord) for piece in pieces), pieces
    return [piece for piece in pieces if isinstance(piece, SourceRecord)]


def bad_of(format: LogFormat, path: Path) -> list[BadRecord]:
    return [piece for piece in format.split(path) if isinstance(piece, BadRecord)]


ODD: list[Any] = [
    None,
    5,
    -1.5,
    True,
    "",
    "x",
    [],
    {},
    ["x"],
    [None],
    {"a": 1},
    [{}],
    [{"type": "text"}],
    {"type": "text", "text": 5},
]


def reads_or_refuses(format: LogFormat, folder: Path, rows: Sequence[Any], chance: random.Random) -> None:
    """Some rows lose a key or hold something odd in its place: whatever is let through must be readable."""
    path = folder / "mutated.jsonl"
    path.write_bytes(b"".join(line(_mutated(row, chance) if chance.random() < 0.3 else row) for row in rows))
    read(format, [path])


def _mutated(value: Any, chance: random.Random) -> Any:
    value = copy.deepcopy(value)
    at, key = chance.choice(list(_places(value)))
    if isinstance(at, dict) and chance.random() < 0.3:
        del at[key]
    else:
        at[key] = chance.choice(ODD)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(inner)
