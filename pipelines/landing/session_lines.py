"""Files whose lines do not say whose they are: only the first line or the file's name names the session.

A line alone would then be equal to a line of another session and could not find its bundle. So each is stored together
with the session's name and, since `attempts` must not depend on the order of records, with what tells it from other lines
of the same time. Such a file is always read from its start, where the session is named.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipelines.ids import canonical_json
from pipelines.landing.decoding import Facts
from pipelines.landing.format import Piece, StoredRecord
from pipelines.landing.jsonl import split_lines
from pipelines.landing.moments import moment
from pipelines.landing.opening import open_log
from pipelines.landing.pieces import FactsOf

_NUM_LINES = 20
_NUM_TRIES = 64
"""At how many places of a line that is no JSON an object is looked for: a torn line may stand before it."""


def split_placed(path: Path, start: int, facts: FactsOf) -> Iterator[Piece]:
    """The file's pieces from byte `start` on; `facts` is made anew for each reading, since it remembers earlier lines."""
    return (piece for piece in split_lines(path, 0, 1, facts) if piece.byte_start >= start)


def header(path: Path, is_header: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first object among the file's first lines that names the session; empty where none does.

    Raises OSError where the file cannot be read.
    """
    with open_log(path) as stream:
        try:
            lines = [stream.readline() for _ in range(_NUM_LINES)]
        except EOFError:
            return {}
    return next((value for line in lines for value in _objects(line) if is_header(value)), {})


def unnamed(path: Path) -> str:
    """What stands for a session whose file does not name it: its first line, so that a copy of the file is the same one."""
    with open_log(path) as stream:
        return f"file-{hashlib.sha256(stream.readline().strip()).hexdigest()[:32]}"


class Places:
    """Tells where each line of a file belongs, by its time and, among lines of one time, by its turn.

    The same line of the same time has the same place, however often it is written. A line without a time belongs behind the
    one before it, and has a place of its own: somebody may say the same thing twice.
    """

    def __init__(self) -> None:
        self._at: str | None = None
        self._seen: dict[str | None, dict[bytes, int]] = {}

    def place(self, time: datetime.datetime | None, row: Any) -> dict[str, Any]:
        """`at` and `tie` of the next line."""
        self._at = self._at if time is None else time.isoformat(timespec="microseconds")
        of_time = self._seen.setdefault(self._at, {})
        line = b"%d" % len(of_time) if time is None else hashlib.sha256(canonical_json(row)).digest()[:12]
        return {"at": self._at, "tie": of_time.setdefault(line, len(of_time))}


def in_place(facts: Facts, session: str, place: dict[str, Any], row: Any, **told: Any) -> Facts:
    """The facts of a line that is stored with its session and its place; `told` is what else only its file tells."""
    vendor_id = None if facts.vendor_id is None else f"{session}/{facts.vendor_id}"
    value = {"session": session, **place, **told, "row": row}
    # a line without a time was written when the one before it was: else its attempt would count as of the day of landing
    return Facts(
        vendor_id=vendor_id,
        bundle_ref=session,
        time=facts.time or moment(place["at"]),
        skip_reason=facts.skip_reason,
        value=value,
    )


def placed(facts: FactsOf, session: str, *, name: str | None = None, **told: Any) -> FactsOf:
    """`facts` of bare lines, for lines that are stored with their session and their place; made anew for each reading.

    Lines that have the same value under the key `name` are states of one message, and have the same place. Lines that are
    skipped take nobody's place.
    """
    places, skipped = Places(), Places()

    def read(row: Any) -> Facts:
        found = facts(row)
        same = row if name is None or row.get(name) is None else row[name]
        place = (places if found.skip_reason is None else skipped).place(found.time, same)
        return in_place(found, session, place, row, **told)

    return read


def in_order(records: Sequence[StoredRecord]) -> list[StoredRecord]:
    """Records made by `in_place`, in the order in which they were written."""
    return sorted(records, key=place_of)


def place_of(record: StoredRecord) -> tuple[str, int, str]:
    """Where such a record belongs among those of its session."""
    return record.value["at"] or "", record.value["tie"], record.record_id


def logged_at(record: StoredRecord) -> datetime.datetime | None:
    """When the row of such a record was logged, by its own `timestamp`."""
    return moment(record.value["row"].get("timestamp"))


def _objects(line: bytes) -> Iterator[dict[str, Any]]:
    cut = 0
    for _ in range(_NUM_TRIES):
        try:
            value = orjson.loads(line[cut:])
        except orjson.JSONDecodeError:
            cut = line.find(b'{"', cut + 1)
            if cut < 0:
                return
            continue
        if isinstance(value, dict):
            yield value
        return
