"""Processes that make the rows of blocks of lines (block_rows.py), so that landing uses more than one core.

They are programs started anew, never forks: Delta's library does not survive a fork, and a fork would hold on to all memory
of its starter. Each works on one list of blocks at a time, so what lies between landing and them is bounded. They end when
the pool is closed, and when its process dies, since their standard input ends then.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import cast

from pipelines.errors import RowWorkerError
from pipelines.landing.block_rows import LineBlock, Made
from pipelines.landing.row_frames import Answer, heard, receive, rows_of_frames, send, told
from pipelines.landing.rows import RowSetting

ROOT = Path(__file__).resolve().parents[2]

POOL_BYTES = 32 << 20
"""Bytes of logs that there must be before processes are started. To start one takes 0.3 to 0.5 s of CPU, in which one core
lands 10 to 20 MB: below that nothing is gained, and a night of small logs would pay it for every landing."""

MOST_PROCESSES = 5
"""Committing is a third of all CPU time and stays in one process: it cannot keep more busy than these."""

_END_SECONDS = 5.0
_QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def num_processes(wanted: int | None) -> int:
    """How many processes make rows, landing's own among them. None: as many as this process may use cores."""
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES) if wanted is None else wanted


class RowPool:
    """Some processes with one setting; `tokenizer` is asked where one of them needs it."""

    def __init__(self, setting: RowSetting, num: int, tokenizer: Callable[[], Path | None]) -> None:
        self.num = num
        self._tokenizer, self._asking = tokenizer, threading.Lock()
        self._idle: queue.SimpleQueue[_RowWorker] = queue.SimpleQueue()
        self._all: list[_RowWorker] = []
        self._threads = ThreadPoolExecutor(num, "rows")
        try:
            for _ in range(num):
                process = _RowWorker(setting)
                self._all.append(process)
                self._idle.put(process)
        except BaseException:
            self.close()
            raise

    def make(self, blocks: Sequence[LineBlock]) -> Future[list[Made]]:
        """The rows of some blocks, when a process had time; RowWorkerError where it died over them."""
        return self._threads.submit(self._make, blocks)

    def close(self) -> None:
        """End all processes, whatever they are at."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._all:
            process.end()
        self._threads.shutdown()

    def _make(self, blocks: Sequence[LineBlock]) -> list[Made]:
        process = self._idle.get()
        try:
            return process.make(blocks, self._known_tokenizer)
        finally:
            self._idle.put(process)

    def _known_tokenizer(self) -> Path | None:
        with self._asking:
            return self._tokenizer()


class _RowWorker:
    def __init__(self, setting: RowSetting) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "pipelines.landing.row_program"],
            cwd=ROOT,
            env={**os.environ, **_QUIET},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            process_group=0,  # Ctrl-C is for landing, which ends them
        )
        assert self._child.stdin is not None and self._child.stdout is not None
        self._to, self._from = self._child.stdin.fileno(), self._child.stdout.fileno()
        with contextlib.suppress(BrokenPipeError):  # it died at once: the first blocks say so
            send(self._to, told(setting))

    def make(self, blocks: Sequence[LineBlock], tokenizer: Callable[[], Path | None]) -> list[Made]:
        try:
            send(self._to, told(blocks))
            while True:
                answer = cast(Answer, heard(self._heard()))
                if answer.kind == "rows":
                    return rows_of_frames(answer, self._heard(), self._heard())
                if answer.problem is not None:
                    raise answer.problem
                send(self._to, told(tokenizer()))
        except BrokenPipeError:
            raise self._died() from None

    def end(self) -> None:
        """At once: whoever still waits for an answer hears that it is gone."""
        self._child.kill()
        self._child.wait()

    def _heard(self) -> memoryview:
        frame = receive(self._from)
        if frame is None:
            raise self._died()
        return frame

    def _died(self) -> RowWorkerError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_END_SECONDS)
        code = self._child.poll()
        how = f"was ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with code {code}"
        return RowWorkerError(
            f"a process that reads logs {how} (with SIGKILL mostly for want of memory); what was committed stays: run the same "
            "command again, with fewer [landing] workers if need be (1: none)"
        )
