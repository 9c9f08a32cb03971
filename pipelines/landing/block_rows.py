"""Blocks of lines -> finished rows: all of landing that needs nothing but the lines themselves.

A record's id may hang on how many equal ones stand before it in its file, which only the reader of the whole file knows:
such rows are named, with their number within their block, and get their final id where the blocks come together (`settled`).
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pipelines.ids import Identity
from pipelines.landing.chunks import Firsts, bad_content_id, in_chunks, numbered_bad_id, numbered_id
from pipelines.landing.format import LogFormat
from pipelines.landing.jsonl import LineReader
from pipelines.landing.rows import Found, RowMaker, Rows


@dataclass(frozen=True)
class LineBlock:
    """A block of one file, and how its lines are read."""

    shown: str
    format: LogFormat
    reader: LineReader
    start: int
    line: int
    raw: bytes


@dataclass
class Made:
    """What one block came to: its rows in the order of the file, under ids that are not settled yet."""

    records: Rows
    bad: Rows
    unnamed: list[tuple[int, str]] = field(default_factory=list)
    """Records that are identified by their number among equals: number of the row, content_id."""
    bad_content: list[str] = field(default_factory=list)
    """content_id of each bad piece."""
    repeated: int = 0
    end: int = 0
    """As Chunk.end."""
    num_bytes: int = 0
    unfinished: bool = False

    def settled(self, identity: Identity, counted: Counter[str]) -> Firsts:
        """Give the rows their final ids; `counted` are the equal pieces of the file before the block, and then with it."""
        firsts, within = Firsts(), Counter[str]()
        changed: dict[int, str] = {}
        for row, content_id in self.unnamed:
            counted[content_id] += 1
            within[content_id] += 1
            if counted[content_id] != within[content_id]:
                changed[row] = numbered_id(identity, content_id, counted[content_id])
            elif counted[content_id] == 1:
                firsts.records.append(numbered_id(identity, content_id, 1))
        self.records = _renamed(self.records, changed)
        changed = {}
        for row, content_id in enumerate(self.bad_content):
            counted[content_id] += 1
            changed[row] = numbered_bad_id(identity, content_id, counted[content_id])
            if counted[content_id] == 1:
                firsts.bad.append(changed[row])
        self.bad = _renamed(self.bad, changed)
        return firsts


def make(blocks: Sequence[LineBlock], rows: RowMaker) -> list[Made]:
    """The rows of some blocks; those of one file follow each other."""
    identity = rows.setting.identity
    made: list[Made] = []
    ids: list[str] = []
    found: list[Found] = []
    bad: list[tuple[str, Found]] = []
    ends: list[tuple[int, int]] = []
    for block in blocks:
        one = Made(NO_ROWS, NO_ROWS, end=block.start)
        pieces = block.reader.pieces(io.BytesIO(block.raw), block.start, block.line)
        first, seen = len(ids), set[str]()
        for chunk in in_chunks(identity, block.format, pieces, block.start, Counter()):
            for record_id, piece in chunk.records.items():
                if record_id in seen:  # it stands in another chunk of the block
                    one.repeated += 1
                    continue
                seen.add(record_id)
                if piece.record.vendor_id is None:
                    one.unnamed.append((len(ids) - first, piece.content_id))
                ids.append(record_id)
                found.append(Found(piece, block.shown, block.format))
            for record_id, piece in chunk.bad.items():
                bad.append((record_id, Found(piece, block.shown, block.format)))
                one.bad_content.append(bad_content_id(identity, piece))
            one.repeated += chunk.repeated
            one.num_bytes += chunk.num_bytes
            one.end, one.unfinished = chunk.end, chunk.unfinished
        ends.append((len(ids), len(bad)))
        made.append(one)
    records, bad_rows = rows.listed_records(ids, found), rows.listed_bad(bad)
    start = bad_start = 0
    for one, (end, bad_end) in zip(made, ends, strict=True):
        one.records, one.bad = records.part(start, end - start), bad_rows.part(bad_start, bad_end - bad_start)
        start, bad_start = end, bad_end
    return made


NO_ROWS = Rows(pa.table({"record_id": pa.array([], pa.string())}))


def _renamed(rows: Rows, changed: dict[int, str]) -> Rows:
    if not changed:
        return rows
    ids = rows.table.column("record_id").to_pylist()
    for number, record_id in changed.items():
        ids[number] = record_id
    table = rows.table.set_column(rows.table.schema.get_field_index("record_id"), "record_id", pa.array(ids, pa.string()))
    return Rows(table, rows.redactions)
