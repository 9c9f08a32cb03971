"""JSONL files whose lines do not say whose they are: only the first line or the file's name names the session.

A line alone would then be equal to a line of another session and could not find its bundle. So each is stored together
with the session's name and, since `attempts` must not depend on the order of records, with what tells it from other lines
of the same time. Such a file is always read from its start, where the session is named.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.ids import canonical_json
from pipelines.landing.decoding import Facts
from pipelines.landing.format import Piece, StoredRecord
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import checked_moment
from pipelines.landing.pieces import FactsOf


def split_session(path: Path, start: int, facts: FactsOf) -> Iterator[Piece]:
    """The file's pieces from byte `start` on; `facts` is made anew for each reading, since it remembers earlier lines."""
    return (piece for piece in split_lines(path, 0, 1, facts) if piece.byte_start >= start)


class Places:
    """Tells where each line of a file belongs, by its time and, among lines of one time, by its turn.

    The same line of the same time has the same place, however often it is written. A line without a time belongs behind the
    one before it.
    """

    def __init__(self) -> None:
        self._at: str | None = None
        self._seen: dict[str | None, dict[bytes, int]] = {}

    def place(self, time: datetime.datetime | None, row: Any) -> dict[str, Any]:
        """`at` and `tie` of the next line."""
        self._at = self._at if time is None else time.isoformat(timespec="microseconds")
        of_time = self._seen.setdefault(self._at, {})
        return {"at": self._at, "tie": of_time.setdefault(hashlib.sha256(canonical_json(row)).digest()[:12], len(of_time))}


def in_session(facts: Facts, session: str, place: dict[str, Any], row: Any, **told: Any) -> Facts:
    """The facts of a line that is stored with its session and its place; `told` is what else only its file tells."""
    vendor_id = None if facts.vendor_id is None else f"{session}/{facts.vendor_id}"
    value = {"session": session, **place, **told, "row": row}
    # a line without a time was written when the one before it was: else its attempt would count as of the day of landing
    return Facts(
        vendor_id=vendor_id,
        bundle_ref=session,
        time=facts.time or checked_moment(place["at"]),
        skip_reason=facts.skip_reason,
        value=value,
    )


def in_order(records: Sequence[StoredRecord]) -> list[StoredRecord]:
    """Records made by `in_session`, in the order in which they were written."""
    return sorted(records, key=lambda record: (record.value["at"] or "", record.value["tie"], record.record_id))
