"""Files read the way landing and the trajectories stage read them, for tests over real logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelines.landing import registry
from pipelines.landing.format import Attempt, BadRecord, LogFormat, SourceRecord
from tests.landing.lines import attempts


def read(format: LogFormat, *paths: Path) -> tuple[list[Attempt], list[BadRecord]]:
    """The attempts and bad records of some files that must be of one format; checks that every record has one place."""
    bundles: dict[Any, list[Any]] = defaultdict(list)
    bad: list[BadRecord] = []
    for path in paths:
        found = registry.detect(path)
        assert found is not None and found.name == format.name, path
        end = 0
        for piece in format.split(path):
            assert isinstance(piece, SourceRecord | BadRecord)
            assert end <= piece.byte_start < piece.byte_end <= path.stat().st_size
            end = piece.byte_end
            if isinstance(piece, BadRecord):
                bad.append(piece)
            elif piece.skip_reason is None:
                bundles[piece.bundle_ref or piece.content].append(piece.value)
    return [attempt for values in bundles.values() for attempt in attempts(format, *values)], bad


def of_text(format: LogFormat, path: Path, content: bytes | str) -> tuple[list[Attempt], list[BadRecord]]:
    """The same of a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read(format, path)


def claimed(paths: Iterable[Path]) -> dict[str, str | None]:
    """Format of each file, by its name."""
    return {path.name: (found.name if (found := registry.detect(path)) else None) for path in paths}
