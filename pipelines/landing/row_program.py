"""The process that makes rows for landing: `python -m pipelines.landing.row_program`, started by row_pool.py alone.

It imports neither Delta nor the SQL engine: it starts in a third of a second, and knows no lake. It ends when its standard
input does, which is also when whoever started it dies.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import pyarrow as pa

from pipelines.landing.block_rows import NO_ROWS, make
from pipelines.landing.row_frames import Answer, heard, receive, rows_as_frames, send, told
from pipelines.landing.rows import RowMaker


def main() -> None:
    """Answer until nobody asks any more."""
    asked, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what a library prints must not stand between the answers
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    pa.set_cpu_count(1)  # there is a process for each core already

    def tokenizer() -> Path | None:
        send(answers, told(Answer("tokenizer")))
        frame = receive(asked)
        if frame is None:
            sys.exit(0)
        return heard(frame)

    try:
        if (frame := receive(asked)) is None:
            return
        rows = RowMaker(heard(frame), tokenizer)
        while (frame := receive(asked)) is not None:
            try:
                answer, *tables = rows_as_frames(make(heard(frame), rows), NO_ROWS)
            except Exception as problem:  # whatever it is, whoever asked raises it: this process only makes rows
                problem.add_note(traceback.format_exc())
                send(answers, _failed(problem))
                continue
            del frame
            for part in (told(answer), *tables):
                send(answers, part)
    except BrokenPipeError:  # whoever asked is gone
        return


def _failed(problem: Exception) -> bytes:
    try:
        return told(Answer("failed", problem=problem))
    except Exception:  # not every exception can be sent; its text always can
        return told(Answer("failed", problem=RuntimeError("".join(traceback.format_exception(problem)))))


if __name__ == "__main__":
    main()
