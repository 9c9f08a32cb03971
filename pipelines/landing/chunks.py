"""Pieces of a file with their ids, in chunks that are committed one by one, so that memory does not grow with the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipelines.ids import Identity
from pipelines.landing.format import BadRecord, LogFormat, SourceRecord, Unfinished
from pipelines.landing.offsets import Position

CHUNK_BYTES = 16 << 20
CHUNK_PIECES = 20_000


class ReadWholeError(Exception):
    """A piece behind the resumed offset is identified by its number among equals: only a reading from the start can count."""


@dataclass(frozen=True)
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
    unfinished: bool = False
    """The file's end, behind this chunk, is still being written."""

    @property
    def num_pieces(self) -> int:
        """Records and bad pieces."""
        return len(self.records) + len(self.bad)


def chunks(identity: Identity, format: LogFormat, position: Position) -> Iterator[Chunk]:
    """The file from a position on, in chunks; ReadWholeError where it cannot be resumed there after all.

    A record's id is its vendor's own id together with its content, since some tools write one message again as it
    grows: each version is kept once, and the format's `attempt` picks. Without such an id it is the content and its
    number among equals in this file, so that over all files the table holds each content as often as the file that
    has it most often.
    """
    counted: Counter[str] = Counter()
    chunk, num_bytes = Chunk(end=position.offset), 0
    for piece in format.split(position.path, position.offset, position.line):
        if isinstance(piece, Unfinished):
            chunk.unfinished = True
            break
        if position.offset > 0 and (isinstance(piece, BadRecord) or piece.vendor_id is None):
            raise ReadWholeError
        if isinstance(piece, BadRecord):
            content_id = identity.of("content", "bad", piece.raw)
            counted[content_id] += 1
            chunk.bad[identity.of("record", "bad", content_id, str(counted[content_id]))] = piece
        else:
            record_id, identified = _identified(identity, format, piece, counted)
            chunk.repeated += record_id in chunk.records
            chunk.records.setdefault(record_id, identified)
        chunk.end = piece.byte_end
        num_bytes += piece.byte_end - piece.byte_start
        if num_bytes >= CHUNK_BYTES or chunk.num_pieces >= CHUNK_PIECES:
            yield chunk
            chunk, num_bytes = Chunk(end=chunk.end), 0
    if chunk.num_pieces or chunk.unfinished:
        yield chunk


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
