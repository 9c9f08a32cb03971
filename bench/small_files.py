"""Landing of a tree of very many small files: files per CPU second, memory, and whether twice the files cost twice the time.

    python -m bench.small_files [--files 100000] [--folder /dev/shm] [--json]

Each file holds one line of the recording door (1 KB), 100 files a folder. Landed three times: everything new; again with
nothing new; and with one file in a hundred grown by a line. Half the tree is landed first in a lake of its own: `growth` is
what the whole costs over twice that, 1.0 where the cost is linear. Last, what one look of the watcher costs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

LAND = """
import resource, sys, time
from pathlib import Path
from pipelines.landing.land import land
from pipelines.landing.watching import Seen, look
from pipelines.workspace import Workspace
import pipelines.landing.registry
folder, logs, what = sys.argv[1:]
workspace = Workspace.open(folder)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
wall, work = time.monotonic(), time.process_time()
if what == "look":
    num = 0 if look(workspace, [Path(logs)], Seen(), longest=1e9).whole else 1
else:
    num = land(workspace, [Path(logs)]).records
wall, work = time.monotonic() - wall, time.process_time() - work
print(num, wall, work, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
MOST_GROWTH = 1.3


def write_tree(logs: Path, first: int, last: int) -> None:
    """Files `first` to `last`."""
    from tests.landing.lines import call

    for number in range(first, last):
        path = logs / f"{number // 100:05}" / f"{number:06}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(json.dumps(call(number)).encode() + b"\n")


def measured(folder: Path, logs: Path, what: str = "land") -> dict[str, float]:
    """What one landing, or one look, cost in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", LAND, str(folder), str(logs), what], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    num, wall, work, before, after = map(float, done.stdout.split()[-5:])
    return {"records": num, "wall": wall, "cpu": work, "megabytes": after / 1024, "grown": (after - before) / 1024}


def main() -> None:
    """Measure, print, and exit 1 where the cost is not linear."""
    from tests.conftest import make_workspace
    from tests.landing.lines import call

    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument(
        "--folder", type=Path, default=Path("/dev/shm"), help="A file system in memory: the disk is not measured."
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    half = options.files // 2
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        logs = Path(temporary) / "logs"
        found: dict[str, dict[str, float]] = {}
        write_tree(logs, 0, half)
        found["half, new"] = measured(make_workspace(Path(temporary) / "half").folder, logs)
        write_tree(logs, half, options.files)
        folder = make_workspace(Path(temporary) / "whole").folder
        found["new"] = measured(folder, logs)
        found["again"] = measured(folder, logs)
        for number in range(0, options.files, 100):
            with (logs / f"{number // 100:05}" / f"{number:06}.jsonl").open("ab") as stream:
                stream.write(json.dumps(call(options.files + number)).encode() + b"\n")
        found["one in a hundred grown"] = measured(folder, logs)
        found["one look"] = measured(folder, logs, "look")
    growth = found["new"]["cpu"] / (2 * found["half, new"]["cpu"])
    rows: list[dict[str, Any]] = [
        {
            "work": f"{half if name.startswith('half') else options.files} files: {name}",
            "unit": "files per CPU second",
            "ours": round((half if name.startswith("half") else options.files) / one["cpu"]),
            **{key: round(value, 1) for key, value in one.items()},
        }
        for name, one in found.items()
    ]
    if options.json:
        print(json.dumps([*rows, {"work": "growth", "ours": round(growth, 2), "goal": {"at most": MOST_GROWTH}}], indent=2))
    else:
        for row in rows:
            print(
                f"{row['work']}: {row['ours']} {row['unit']}, {row['cpu']} CPU s, {row['wall']} s, "
                f"{row['megabytes']} MB ({row['grown']} MB more than before), {row['records']:.0f} records"
            )
        print(f"growth: {growth:.2f}, at most {MOST_GROWTH}")
    raise SystemExit(1 if growth > MOST_GROWTH else 0)


if __name__ == "__main__":
    main()
