"""Lands files in a process of its own, for kills and races: `python -m tests.landing.program WORKSPACE CHUNK_PIECES FILE…`.

With NIGHTSHIFT_TEST_GATE set it says `ready` and waits for a line, so that several start at the same moment. With
NIGHTSHIFT_TEST_CHUNK_BYTES it lands its files one by one, in chunks of that size, and says its peak after each. With
NIGHTSHIFT_TEST_POOL_BYTES other processes are started for so many bytes of logs, and get little at once; with
NIGHTSHIFT_TEST_WAIT the first commit is never made.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

from pipelines.landing import chunks, line_blocks, pooled, row_pool
from pipelines.landing.land import Landing, land
from pipelines.workspace import Workspace


def peak_megabytes() -> int:
    """Most memory that this program held. `ru_maxrss` would not do: it also counts what the starter held when it forked."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024


def wait(*_: object) -> None:
    """Tell that a commit was reached, and stay there."""
    print("waiting", flush=True)
    time.sleep(3600)


def main() -> None:
    folder, pieces, *paths = sys.argv[1:]
    chunks.CHUNK_PIECES = int(pieces)
    heavy = {"dagster", "mlflow", "torch", "litellm"} & sys.modules.keys()
    assert not heavy, f"a light command imports {heavy}"
    if few := os.environ.get("NIGHTSHIFT_TEST_POOL_BYTES"):
        row_pool.POOL_BYTES = int(few)
        line_blocks.BLOCK = line_blocks.BLOCK_BYTES = pooled.BLOCK_BYTES = 4000
    if os.environ.get("NIGHTSHIFT_TEST_WAIT"):
        Landing._commit = wait  # type: ignore[method-assign]
    workspace = Workspace.open(folder)
    if os.environ.get("NIGHTSHIFT_TEST_GATE"):
        print("ready", flush=True)
        sys.stdin.readline()
    if chunk_bytes := os.environ.get("NIGHTSHIFT_TEST_CHUNK_BYTES"):
        chunks.CHUNK_BYTES = int(chunk_bytes)
        for path in paths:
            say(workspace, [path])
    else:
        say(workspace, paths)


def say(workspace: Workspace, paths: list[str]) -> None:
    landed = land(workspace, [Path(path) for path in paths], day="2026-11-20")
    megabytes = peak_megabytes()
    of_others = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    counts = {"records": landed.records, "quarantined": landed.quarantined, "seen": landed.seen}
    print(json.dumps({**counts, "megabytes": megabytes, "megabytes_of_others": of_others}))


if __name__ == "__main__":
    main()
