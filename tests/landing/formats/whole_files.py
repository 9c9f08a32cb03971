"""Reading whole files through a format: pieces, and the attempts of each bundle, with every record accounted for."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from pipelines.landing import registry
from pipelines.landing.format import Attempt, BadRecord, LogFormat, SourceRecord, StoredRecord, Unfinished
from tests.landing.lines import stored


def split(format: LogFormat, path: Path) -> list[SourceRecord]:
    """The records of a file that holds nothing else."""
    pieces = list(format.split(path))
    assert all(isinstance(piece, SourceRecord) for piece in pieces), pieces
    return [piece for piece in pieces if isinstance(piece, SourceRecord)]


def refused(format: LogFormat, path: Path, content: Any) -> BadRecord:
    """The bad record that a file of this content is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    (bad,) = format.split(path)
    assert isinstance(bad, BadRecord)
    return bad


def read(format: LogFormat, *paths: Path) -> tuple[list[Attempt], dict[str, tuple[str | None, str]]]:
    """Attempts and left records of some files, bundle by bundle, as stage 2 reads them; each record in one place."""
    bundles: dict[str, list[StoredRecord]] = defaultdict(list)
    for path in paths:
        for number, record in enumerate(split(format, path)):
            if record.skip_reason is not None:
                continue
            (made,) = stored(format, record.value)
            name = f"{path.as_posix()}#{number}"
            bundles[record.bundle_ref or name].append(dataclasses.replace(made, record_id=name, source=str(path)))
    attempts: list[Attempt] = []
    left: dict[str, tuple[str | None, str]] = {}
    for records in bundles.values():
        bundle = format.attempts(records)
        again = format.attempts(records[::-1])
        assert sorted(map(repr, again.attempts)) == sorted(map(repr, bundle.attempts)) and again.left == bundle.left
        placed = {record_id for attempt in bundle.attempts for record_id in attempt.record_ids}
        assert not placed & bundle.left.keys()
        assert placed | bundle.left.keys() == {record.record_id for record in records}
        assert len({attempt.ref for attempt in bundle.attempts}) == len(bundle.attempts)
        attempts += bundle.attempts
        left |= bundle.left
    return attempts, left


def read_folder(format: LogFormat, folder: Path, *, refuses: tuple[str, ...] = ()) -> dict[str, list[Attempt]]:
    """Attempts of every file of a folder of real logs, by file name; `refuses`: beginnings of names of no file of the format."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        claimed = registry.detect(path)
        if path.name.startswith(refuses):
            assert claimed is None or claimed.name != format.name
            continue
        assert claimed is not None and claimed.name == format.name, path
        assert not any(isinstance(piece, Unfinished | BadRecord) for piece in format.split(path))
        found[path.name], _ = read(format, path)
        for attempt in found[path.name]:
            assert [turn["call"] for turn in attempt.turns if turn["sampled"]] == list(range(len(attempt.calls)))
            for turn in attempt.turns:
                assert turn["role"] in ("system", "developer", "user", "assistant", "tool")
                assert all(isinstance(call["function"]["arguments"], str) for call in turn.get("tool_calls", ()))
                assert not turn["sampled"] or turn["role"] == "assistant"
    return found


def shape(attempt: Attempt) -> str:
    """Its roles by their first letters, capital where sampled."""
    return "".join(turn["role"][0].upper() if turn["sampled"] else turn["role"][0] for turn in attempt.turns)
