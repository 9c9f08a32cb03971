"""Progress of long work, on standard error: a bar on a terminal, a line per tenth elsewhere, nothing under two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

QUIET_SECONDS = 2.0
"""Work shorter than this shows nothing."""


@contextmanager
def bar(label: str, total: int, *, unit: Literal["parts", "bytes"] = "parts") -> Iterator[Callable[[int], None]]:
    """Yields `advance(n)`; call it as parts of the work are done. Bytes are shown as MB."""
    if sys.stderr.isatty():
        counted = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
        columns = (TextColumn("{task.description:>24}"), BarColumn(), counted, TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
            task = shown.add_task(label, total=total)
            yield lambda count: shown.advance(task, count)
        return
    started, finished, printed = time.monotonic(), 0, 0

    def advance(count: int) -> None:
        nonlocal finished, printed
        finished += count
        tenth = 10 * finished // max(total, 1)
        if tenth > printed and time.monotonic() - started >= QUIET_SECONDS:
            printed = tenth
            print(f"{label}: {_counted(finished, total, unit)}", file=sys.stderr, flush=True)

    yield advance


def _counted(finished: int, total: int, unit: str) -> str:
    return f"{finished / 1e6:,.1f} of {total / 1e6:,.1f} MB" if unit == "bytes" else f"{finished}/{total}"
