"""Files that are read by several processes, taken in by one in the order in which they were given.

Each file is cut into blocks, small files share one message, and what comes back is handed on in the order of files and
blocks. While all processes have enough to do, this one makes rows too. What cannot be cut (a document, a long line) waits
for its turn and is read here, while the processes go on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from pipelines.landing.block_rows import LineBlock, Made, make
from pipelines.landing.format import LogFormat
from pipelines.landing.jsonl import LineReader
from pipelines.landing.line_blocks import BLOCK_BYTES, blocks
from pipelines.landing.offsets import Position
from pipelines.landing.row_pool import RowPool
from pipelines.landing.rows import RowMaker

_EACH = 2
"""Messages that each process has at once: one that it works on, one that waits, so that it never waits for this one."""

_AHEAD = 4
"""Messages that this process makes while it waits for an earlier one. All that are under way are in memory."""


@dataclass
class Reading:
    """How far one file is read and taken in."""

    position: Position
    """Runs behind what is taken in."""
    shown: str
    format: LogFormat
    app_id: str
    started: int
    """The committed sequence that was there before the file was read."""
    advance: Callable[[int], None]
    """Shows progress, in bytes."""
    counted: Counter[str] = field(default_factory=Counter)
    """Equal pieces of it that are identified by their number."""
    end: int = field(init=False)
    """Offset up to which it is taken in."""
    resumed: bool = field(init=False)
    """It is read on from where it was left: what is before was taken in earlier."""
    num_chunks: int = 0
    abandoned: bool = False
    """What is still to come of this reading is of no use."""

    def __post_init__(self) -> None:
        self.end, self.resumed = self.position.offset, self.position.offset > 0

    @property
    def start(self) -> Position:
        """Where it begins, apart from `position`, which will move."""
        return Position(self.position.path, self.position.offset, self.position.line)

    def anew(self) -> Reading:
        """The same file from its start; this reading is abandoned."""
        self.abandoned = True
        return Reading(self.position.at_start(), self.shown, self.format, self.app_id, self.started, self.advance)


Turn = Callable[[], None]
"""Something that is done here when all before it is taken in."""
Take = Callable[[Reading, Made], None]


@dataclass
class _Message:
    blocks: list[LineBlock] = field(default_factory=list)
    """For one process."""
    num_bytes: int = 0
    steps: list[tuple[Reading, Take, bool] | Turn] = field(default_factory=list)
    """What to do with the answer: for each block its file, who takes it, and whether the file is cut behind it; or something else."""
    answer: Future[list[Made]] | None = None
    """Of another process."""
    made: list[Made] = field(default_factory=list)
    """Made here."""

    @property
    def is_done(self) -> bool:
        return self.answer is None or self.answer.done()


class Pooled:
    """Takes files in through a pool."""

    def __init__(self, pool: RowPool, rows: RowMaker) -> None:
        self.pool, self._rows = pool, rows
        self._open = _Message()
        self._sent: deque[_Message] = deque()

    def read(
        self, reading: Reading, reader: LineReader, take: Take, rest: Callable[[Reading, Position], None], ended: Turn
    ) -> None:
        """Take in a file of lines: `take` gets the rows of each block, in order, `rest` takes it in from a place on where a
        line is too long to be sent, `ended` is called at last.

        Raises OSError where it cannot be read: what was read before is taken in.
        """
        try:
            for block in blocks(reading.position.path, reading.position.offset, reading.position.line):
                if reading.abandoned:
                    return
                if block.long:
                    place = Position(reading.position.path, block.start, block.line)
                    self.later(partial(_unless_abandoned, reading, partial(rest, reading, place)))
                    return
                self._open.blocks.append(LineBlock(reading.shown, reading.format, reader, block.start, block.line, block.raw))
                self._open.num_bytes += len(block.raw)
                self._open.steps.append((reading, take, block.cut))
                if self._open.num_bytes >= BLOCK_BYTES:
                    self._send()
        finally:
            self.later(ended)

    def later(self, turn: Turn) -> None:
        """Do something when all that was given before is taken in."""
        self._open.steps.append(turn)
        if len(self._open.steps) >= _MOST_STEPS:
            self._send()

    def finish(self) -> None:
        """Take in all that was given."""
        self._send()
        while self._sent:
            self._receive()

    def _send(self) -> None:
        message, self._open = self._open, _Message()
        if message.blocks:
            under_way = sum(1 for sent in self._sent if sent.answer is not None and not sent.answer.done())
            if under_way < _EACH * self.pool.num:
                message.answer = self.pool.make(message.blocks)
            else:
                message.made = make(message.blocks, self._rows)
            message.blocks = []
        self._sent.append(message)
        while self._sent and (self._sent[0].is_done or len(self._sent) > _EACH * self.pool.num + _AHEAD):
            self._receive()

    def _receive(self) -> None:
        message = self._sent.popleft()
        made = message.made if message.answer is None else message.answer.result()
        made.reverse()
        for step in message.steps:
            if not isinstance(step, tuple):
                step()
                continue
            reading, take, cut = step
            one = made.pop()
            one.unfinished |= cut
            if not reading.abandoned:
                take(reading, one)


def _unless_abandoned(reading: Reading, turn: Turn) -> None:
    if not reading.abandoned:
        turn()


_MOST_STEPS = 200
"""Files and blocks of one message: of very small files, one message holds so many."""
