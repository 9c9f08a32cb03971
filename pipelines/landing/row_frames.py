"""What landing and the processes that make rows for it say to each other, over the pipes of their standard input and output.

Everything is a frame: its length in 8 bytes, then its bytes. To the process go one RowSetting and then lists of blocks; for
each list it answers with one Answer and, where that holds rows, with the rows of both tables as Arrow streams. It may first
ask for the tokenizer, which is answered with a path. Nothing of it, keys least of all, stands on a command line or on a disk.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251  # between a program and the child that it started, over their own pipe; never stored
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from pipelines.landing.block_rows import Made
from pipelines.landing.rows import Rows

_LENGTH = 8

Shape = tuple[int, int, Made]
"""Rows in each table, and the rest, without tables."""


@dataclass(frozen=True)
class Answer:
    """What a process says."""

    kind: Literal["rows", "tokenizer", "failed"]
    shapes: list[Shape] | None = None
    redactions: tuple[dict[int, Counter[str]], dict[int, Counter[str]]] | None = None
    problem: BaseException | None = None
    """What the work failed with, which nobody foresaw."""


def send(descriptor: int, frame: bytes | memoryview | pa.Buffer) -> None:
    """Write one frame. Raises BrokenPipeError where nobody reads any more."""
    view = memoryview(frame)
    head = view.nbytes.to_bytes(_LENGTH, "little")
    for part in (memoryview(head), view):
        while part.nbytes:
            part = part[os.write(descriptor, part) :]


def receive(descriptor: int) -> memoryview | None:
    """Read one frame; None where the other side is gone."""
    head = _read(descriptor, _LENGTH)
    return None if head is None else _read(descriptor, int.from_bytes(head, "little"))


def told(value: Any) -> bytes:
    """A value as a frame."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def can_be_told(value: Any) -> bool:
    """Whether another process can be given it: functions must stand in a module, under their name."""
    try:
        told(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def heard(frame: memoryview) -> Any:
    """The value that a frame holds: only ever read from a process that this program started, or that started it."""
    return pickle.loads(frame)


def rows_as_frames(made: list[Made], no_rows: Rows) -> tuple[Answer, pa.Buffer, pa.Buffer]:
    """Rows that stand one after the other, table by table."""
    records, bad = Rows.joined([one.records for one in made]), Rows.joined([one.bad for one in made])
    shapes: list[Shape] = []
    for one in made:
        shapes.append((one.records.table.num_rows, one.bad.table.num_rows, one))
        one.records = one.bad = no_rows
    return Answer("rows", shapes, (records.redactions, bad.redactions)), _stream(records.table), _stream(bad.table)


def rows_of_frames(answer: Answer, records: memoryview, bad: memoryview) -> list[Made]:
    """The same on the other side."""
    assert answer.shapes is not None and answer.redactions is not None
    all_records, all_bad = Rows(_table(records), answer.redactions[0]), Rows(_table(bad), answer.redactions[1])
    made: list[Made] = []
    start = bad_start = 0
    for num_records, num_bad, one in answer.shapes:
        one.records, one.bad = all_records.part(start, num_records), all_bad.part(bad_start, num_bad)
        start, bad_start = start + num_records, bad_start + num_bad
        made.append(one)
    return made


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _table(frame: memoryview) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(frame)).read_all()


def _read(descriptor: int, num_bytes: int) -> memoryview | None:
    buffer = memoryview(bytearray(num_bytes))
    filled = 0
    while filled < num_bytes:
        read = os.readv(descriptor, [buffer[filled:]])
        if read == 0:
            return None
        filled += read
    return buffer
