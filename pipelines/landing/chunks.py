"""Pieces of a file with their ids, in chunks, so that memory does not grow with the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pipelines.ids import Identity
from pipelines.landing.format import BadRecord, LogFormat, Piece, SourceRecord, Unfinished
from pipelines.landing.offsets import Position
from pipelines.schemas import QUARANTINE, RECORDS

CHUNK_BYTES = 16 << 20
CHUNK_PIECES = 20_000

HeldAmong = Callable[[str, Sequence[str]], set[str]]
"""Those of some record ids that a table holds: (table, ids)."""


def _nothing(table: str, ids: Sequence[str]) -> set[str]:
    del table, ids
    return set()


class ReadWholeError(Exception):
    """A piece behind the resumed offset is identified by its number among equals, and equals are before it: only a reading
    from the start can count them."""


@dataclass(slots=True)
class Identified:
    """A record with its ids, all taken before redaction."""

    record: SourceRecord
    content_id: str
    bundle_key: str


@dataclass
class Firsts:
    """Ids of the pieces that are the first of their content behind a place of a file."""

    records: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    def refuse(self, held: HeldAmong) -> None:
        """ReadWholeError where one is held: what was read before may hold its equal, or another file does."""
        if held(RECORDS.name, self.records) or held(QUARANTINE.name, self.bad):
            raise ReadWholeError


@dataclass
class Chunk:
    """Some pieces of a file, by record id."""

    records: dict[str, Identified] = field(default_factory=dict)
    bad: dict[str, BadRecord] = field(default_factory=dict)
    repeated: int = 0
    """Records that stand in this chunk more than once under one id of their own."""
    end: int = 0
    """Offset up to which the file is read when this chunk is in the lake."""
    num_bytes: int = 0
    unfinished: bool = False
    """The file's end, behind this chunk, is still being written."""
    rests: bool = False
    """That end is taken as it is once the file is at rest."""
    firsts: Firsts = field(default_factory=Firsts)

    @property
    def num_pieces(self) -> int:
        """Records and bad pieces."""
        return len(self.records) + len(self.bad)


def chunks(
    identity: Identity,
    format: LogFormat,
    position: Position,
    held: HeldAmong = _nothing,
    *,
    resumed: bool | None = None,
    counted: Counter[str] | None = None,
    at_rest: bool = True,
) -> Iterator[Chunk]:
    """The file from a position on, in chunks; ReadWholeError where it cannot be resumed there after all.

    `at_rest`: nobody writes to the file any more, so that a document without its end is what it will always be.

    A record's id is its vendor's own id together with its content, since some tools write one message again as it
    grows: each version is kept once, and the format's `attempts` picks. Without such an id it is the content and its
    number among equals in this file, so that over all files the table holds each content as often as the file that
    has it most often. Behind a resumed offset the count of equals before it is known to be 0 where the lake holds none.
    `counted`: the pieces behind the resumed offset that were counted already; None: the position is that offset.
    """
    resumed = position.offset > 0 if resumed is None else resumed
    pieces = format.split(position.path, position.offset, position.line)
    counted = Counter() if counted is None else counted
    for chunk in in_chunks(identity, format, pieces, position.offset, counted, at_rest=at_rest):
        if resumed:
            chunk.firsts.refuse(held)
        yield chunk


def in_chunks(
    identity: Identity, format: LogFormat, pieces: Iterable[Piece], start: int, counted: Counter[str], *, at_rest: bool = True
) -> Iterator[Chunk]:
    """Pieces that begin at byte `start` of their file, with their ids; `counted`: equals among those before them."""
    chunk = Chunk(end=start)
    for piece in pieces:
        if isinstance(piece, Unfinished):
            if piece.at_rest is None or not at_rest:
                chunk.unfinished, chunk.rests = True, piece.at_rest is not None
                break
            piece = piece.at_rest
        if isinstance(piece, BadRecord):
            content_id = bad_content_id(identity, piece)
            counted[content_id] += 1
            record_id = numbered_bad_id(identity, content_id, counted[content_id])
            chunk.bad[record_id] = piece
            if counted[content_id] == 1:
                chunk.firsts.bad.append(record_id)
        else:
            record_id, identified = _identified(identity, format, piece, counted)
            chunk.repeated += record_id in chunk.records
            chunk.records.setdefault(record_id, identified)
            if piece.vendor_id is None and counted[identified.content_id] == 1:
                chunk.firsts.records.append(record_id)
        chunk.end = piece.byte_end
        chunk.num_bytes += piece.byte_end - piece.byte_start
        if chunk.num_bytes >= CHUNK_BYTES or chunk.num_pieces >= CHUNK_PIECES:
            yield chunk
            chunk = Chunk(end=chunk.end)
    if chunk.num_pieces or chunk.unfinished:
        yield chunk


def numbered_id(identity: Identity, content_id: str, number: int) -> str:
    """Of a record without an id of its own: its content and its number among equals in its file, from 1."""
    return identity.of("record", "content", content_id, str(number))


def bad_content_id(identity: Identity, bad: BadRecord) -> str:
    """Of a bad piece."""
    return identity.of("content", "bad", bad.raw if bad.digest is None else bad.digest)


def numbered_bad_id(identity: Identity, content_id: str, number: int) -> str:
    """Of a bad piece by its content and its number among equals in its file."""
    return identity.of("record", "bad", content_id, str(number))


def _identified(identity: Identity, format: LogFormat, record: SourceRecord, counted: Counter[str]) -> tuple[str, Identified]:
    content_id = identity.of("content", record.content)
    if record.vendor_id is not None:
        record_id = identity.of("record", "vendor", format.name, record.vendor_id, content_id)
    else:
        counted[content_id] += 1
        record_id = numbered_id(identity, content_id, counted[content_id])
    # equal records that name nothing are one bundle: nobody can tell two attempts from one that was copied
    ref = record_id if record.vendor_id is not None else content_id
    if record.bundle_ref is not None:
        ref = record.bundle_ref
    return record_id, Identified(record, content_id, identity.of("bundle", format.name, ref))
