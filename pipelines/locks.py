"""One at a time: an advisory lock on a file of the workspace, released by the system when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pipelines.errors import BusyError


@contextmanager
def waiting(path: Path) -> Iterator[None]:
    """Hold the lock for the block, waiting for it as long as it takes: its holder's death releases it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        _name_holder(stream)
        yield


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold the lock for the block; BusyError names the holder where there is one. `what` says what is going on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.seek(0)
            holder = stream.read().strip() or "an unknown process"
            raise BusyError(f"{what} is going on already ({holder}); wait for it or end it, then run this again") from None
        _name_holder(stream)
        yield


def _name_holder(stream: TextIO) -> None:
    stream.truncate(0)
    stream.write(f"process {os.getpid()}")
    stream.flush()
