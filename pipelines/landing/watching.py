"""Reads: the names, sizes and times of source files, and none of their bytes. Writes: nothing. Next: landing, by whoever watches.

`ingest --watch` and the Dagster sensor look in the same way: at every file's size and times, folder by folder, for a bounded
time; a look that ran out of it goes on at that file the next time. What was seen is kept as one number, the sum over all
files, so that the cursor of a tree of 100,000 files is as short as that of one.

A change counts once its file has settled (nobody wrote to it for SETTLED_SECONDS), or once changes have waited for
LONGEST_WAIT because something is always being written. A document that landing found without its end (`Landed.resting`)
changes no more, so a look is also told whether there is one, and answers yes once a file has come to rest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from pipelines.landing.sources import watched
from pipelines.workspace import Workspace

SETTLED_SECONDS = 2.0
LONGEST_WAIT = 60.0
LONGEST_LOOK = 20.0
"""Seconds of one look; Dagster ends a sensor's tick after 60."""

_MODULUS = 1 << 128


@dataclass(frozen=True)
class Seen:
    """What earlier looks have seen: the cursor."""

    state: str | None = None
    """Of all files, as they were when their last change was taken in; None: never."""
    taken_at: float = 0.0
    """Clock of that look."""
    waiting_since: float | None = None
    """Since when there is a change that has not settled."""
    after: tuple[int, str] | None = None
    """Where a look that ran out of time goes on: number of the source, path; None: at the beginning."""
    so_far: str = "0"
    settled: bool = False
    unsettled: bool = False
    rested: bool = False

    def text(self) -> str:
        """As Dagster keeps it."""
        return orjson.dumps(dataclasses.asdict(self)).decode()

    @classmethod
    def of(cls, text: str | None) -> Seen:
        """From `text`; a cursor of another make is none."""
        try:
            held = orjson.loads(text or "{}")
            after = held.pop("after", None)
            return cls(**held, after=None if after is None else (int(after[0]), str(after[1])))
        except (orjson.JSONDecodeError, TypeError, ValueError, AttributeError, IndexError):
            return cls()


@dataclass(frozen=True)
class Look:
    """What one look found."""

    seen: Seen
    changed: bool
    """There is something to take in."""
    whole: bool
    """All files were looked at; False: the next look goes on."""


def look(
    workspace: Workspace,
    paths: Sequence[Path] | None,
    seen: Seen,
    *,
    resting: bool = False,
    settled_seconds: float = SETTLED_SECONDS,
    longest: float = LONGEST_LOOK,
    clock: Callable[[], float] = time.time,
) -> Look:
    """Look once at the files behind some paths (None: behind [[sources]]) after what was seen before.

    `resting`: the last landing found documents without their end.
    """
    now, end = clock(), time.monotonic() + longest
    total, settled, unsettled, rested = int(seen.so_far, 16), seen.settled, seen.unsettled, seen.rested
    rest = workspace.config.landing.at_rest_seconds
    for number, path in watched(workspace, paths, seen.after):
        try:
            facts = os.stat(path)  # noqa: PTH116  # a Path for each of 100,000 files would be most of a look
        except OSError:  # moved away just now, or a link to nowhere
            continue
        if not stat.S_ISREG(facts.st_mode):
            continue
        said = f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\0{facts.st_ino}".encode("utf-8", "surrogateescape")
        total = (total + int.from_bytes(hashlib.blake2b(said, digest_size=16).digest(), "big")) % _MODULUS
        changed_at = max(facts.st_mtime, facts.st_ctime)
        unsettled = unsettled or changed_at > now - settled_seconds
        settled = settled or seen.taken_at - settled_seconds < changed_at <= now - settled_seconds
        rested = rested or seen.taken_at - rest < facts.st_mtime <= now - rest
        if time.monotonic() > end:
            going_on = dataclasses.replace(
                seen, after=(number, path), so_far=f"{total:x}", settled=settled, unsettled=unsettled, rested=rested
            )
            return Look(going_on, changed=False, whole=False)
    state = f"{total:x}"
    begin = Seen(seen.state, seen.taken_at, seen.waiting_since)
    if state == seen.state:
        quiet = dataclasses.replace(begin, waiting_since=None)
        if resting and rested:
            return Look(dataclasses.replace(quiet, taken_at=now), changed=True, whole=True)
        return Look(quiet, changed=False, whole=True)
    since = now if seen.waiting_since is None else seen.waiting_since
    if unsettled and not settled and now - since < LONGEST_WAIT:
        return Look(dataclasses.replace(begin, waiting_since=since), changed=False, whole=True)
    return Look(Seen(state, now), changed=True, whole=True)
