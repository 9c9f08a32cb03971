"""Pieces of a file with their ids, in chunks, so that memory does not grow with the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pipelines.ids import Identity
from pipelines.landing.format import BadRecord, LogFormat, SourceRecord, Unfinished
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

    @property
    def num_pieces(self) -> int:
        """Records and bad pieces."""
        return len(self.records) + len(self.bad)


def chunks(
    identity: Identity, format: LogFormat, position: Position, held: HeldAmong = _nothing, *, at_rest: bool = True
) -> Iterator[Chunk]:
    """The file from a position on, in chunks; ReadWholeError where it cannot be resumed there after all.

    `at_rest`: nobody writes to the file any more, so that a document without its end is what it will always be.

    A record's id is its vendor's own id together with its content, since some tools write one message again as it
    grows: each version is kept once, and the format's `attempts` picks. Without such an id it is the content and its
    number among equals in this file, so that over all files the table holds each content as often as the file that
    has it most often. Behind a resumed offset the count of equals before it is known to be 0 where the lake holds none.
    """
    resumed, start, line = position.offset > 0, position.offset, position.line
    counted: Counter[str] = Counter()
    chunk, firsts = Chunk(end=start), _Firsts()
    for piece in format.split(position.path, start, line):
        if isinstance(piece, Unfinished):
            if piece.at_rest is None or not at_rest:
                chunk.unfinished, chunk.rests = True, piece.at_rest is not None
                break
            piece = piece.at_rest
        if isinstance(piece, BadRecord):
            content_id = identity.of("content", "bad", piece.raw if piece.digest is None else piece.digest)
            counted[content_id] += 1
            record_id = identity.of("record", "bad", content_id, str(counted[content_id]))
            chunk.bad[record_id] = piece
            if counted[content_id] == 1:
                firsts.bad.append(record_id)
        else:
            record_id, identified = _identified(identity, format, piece, counted)
            chunk.repeated += record_id in chunk.records
            chunk.records.setdefault(record_id, identified)
            if piece.vendor_id is None and counted[identified.content_id] == 1:
                firsts.records.append(record_id)
        chunk.end = piece.byte_end
        chunk.num_bytes += piece.byte_end - piece.byte_start
        if chunk.num_bytes >= CHUNK_BYTES or chunk.num_pieces >= CHUNK_PIECES:
            if resumed:
                firsts.refuse(held)
            yield chunk
            chunk, firsts = Chunk(end=chunk.end), _Firsts()
    if chunk.num_pieces or chunk.unfinished:
        if resumed:
            firsts.refuse(held)
        yield chunk


@dataclass
class _Firsts:
    """Ids of the pieces of a chunk that are the first of their content behind the resumed offset."""

    records: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    def refuse(self, held: HeldAmong) -> None:
        """ReadWholeError where one is held: what was read before may hold its equal, or another file does."""
        if held(RECORDS.name, self.records) or held(QUARANTINE.name, self.bad):
            raise ReadWholeError


def _identified(identity: Identity, format: LogFormat, record: SourceRecord, counted: Counter[str]) -> tuple[str, Identified]:
    content_id = identity.of("content", record.content)
    if record.vendor_id is not None:
        record_id = identity.of("record", "vendor", format.name, record.vendor_id, content_id)
    else:
        counted[content_id] += 1
        record_id = identity.of("record", "content", content_id, str(counted[content_id]))
    # equal records that name nothing are one bundle: nobody can tell two attempts from one that was copied
    ref = record_id if record.vendor_id is not None else content_id
    if record.bundle_ref is not None:
        ref = record.bundle_ref
    return record_id, Identified(record, content_id, identity.of("bundle", format.name, ref))
