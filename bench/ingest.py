"""Landing against what only reads and writes: JSONL to Delta exactly once with redaction, beside readers that do none of it.

    python -m bench.ingest [--megabytes 100] [--runs 3] [--json]

All peers get the same file in the same run, one after the other, each in a process of its own (imports not counted), so a
busy machine slows all of them. Exit 1 where a goal is missed (GOALS below).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORDS = [
    "the",
    "order",
    "of",
    "a",
    "parcel",
    "is",
    "late",
    "please",
    "reply",
    "with",
    "customer",
    "status",
    "address",
    "box",
    "def",
    "return",
    "import",
    "self",
    "value",
    "path",
    "file",
    "error",
    "test",
    "result",
    "call",
    "tool",
    "output",
    "json",
    "index",
    "name",
    "user",
]

OURS = """
import resource, sys, time
from pathlib import Path
from pipelines.landing import rows
from pipelines.landing.land import land
from pipelines.workspace import Workspace
import pipelines.landing.recorder, pipelines.landing.registry
folder, log, redacted = sys.argv[1:]
if redacted == "no":
    rows.BlockScreen.clean = lambda self, texts: [True] * len(texts)
workspace = Workspace.open(folder)
started, work = time.monotonic(), time.process_time()
landed = land(workspace, [Path(log)])
others = resource.getrusage(resource.RUSAGE_CHILDREN)
work -= others.ru_utime + others.ru_stime
print(landed.records, time.monotonic() - started, time.process_time() - work)
"""
PEERS = {
    "polars": """
import sys, time
import polars
started, work = time.monotonic(), time.process_time()
polars.read_ndjson(sys.argv[2]).write_parquet(sys.argv[1] + "/out.parquet")
print(0, time.monotonic() - started, time.process_time() - work)
""",
    "duckdb": """
import sys, time
import duckdb
started, work = time.monotonic(), time.process_time()
duckdb.sql(f"COPY (SELECT * FROM read_json('{sys.argv[2]}')) TO '{sys.argv[1]}/out.parquet' (FORMAT parquet)")
print(0, time.monotonic() - started, time.process_time() - work)
""",
    "dlt": """
import sys, time
import dlt
from dlt.sources.filesystem import filesystem, read_jsonl
from pathlib import Path
log = Path(sys.argv[2])
started, work = time.monotonic(), time.process_time()
pipeline = dlt.pipeline("bench", destination=dlt.destinations.filesystem(sys.argv[1]), pipelines_dir=sys.argv[1], dataset_name="lake")
pipeline.run((filesystem(str(log.parent), file_glob=log.name) | read_jsonl()).with_name("records"), table_format="delta")
print(0, time.monotonic() - started, time.process_time() - work)
""",
}
GOALS = {"polars": 2.0, "duckdb": 2.0, "dlt": 5.0}
MOST_FOR_REDACTION = 0.35


def write_log(path: Path, num_bytes: int) -> int:
    """Lines as the recording door writes them; a few hold an address or a key."""
    from tests.landing.lines import call

    draw, number = random.Random(0), 0

    def text(num_words: int) -> str:
        return " ".join(draw.choices(WORDS, k=num_words))

    with path.open("wb") as stream:
        while stream.tell() < num_bytes:
            turns = [{"role": ("user", "assistant")[turn % 2], "content": f"{text(60)}\n{text(20)}"} for turn in range(6)]
            if number % 100 == 0:
                turns[0]["content"] += f" mail {number}@example.com"
            line = call(
                number,
                request={
                    "messages": [{"role": "system", "content": text(150)}, *turns],
                    "tools": None,
                    "sampling": {"temperature": 1.0},
                },
                prompt_token_ids=[draw.randrange(50_000) for _ in range(300)],
                token_ids=[draw.randrange(50_000) for _ in range(60)],
                logprobs=[-draw.random() for _ in range(60)],
            )
            stream.write(json.dumps(line).encode() + b"\n")
            number += 1
    return number


def run(program: str, *arguments: str, cores: int | None = None) -> tuple[int, float, float]:
    """Records, wall seconds and CPU seconds that a program measured of itself."""
    command = [sys.executable, "-c", program, *arguments]
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=lambda: os.sched_setaffinity(0, allowed)
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    records, wall, work = done.stdout.splitlines()[-1].split()  # DuckDB draws a progress bar before it
    return int(records), float(wall), float(work)


def read_again(folder: Path, log: Path, num_records: int) -> int:
    """Records that are read twice where landing is killed when nine tenths are in the lake."""
    from pipelines.landing.land import land
    from pipelines.schemas import RECORDS
    from pipelines.workspace import Workspace

    workspace = Workspace.open(folder)
    running = subprocess.Popen([sys.executable, "-c", OURS, str(folder), str(log), "yes"], cwd=ROOT, stdout=subprocess.DEVNULL)
    while workspace.lake.num_rows(RECORDS.name) < 0.9 * num_records and running.poll() is None:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    return land(workspace, [log]).seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    from tests.conftest import make_workspace

    here = [name for name in PEERS if importlib.util.find_spec(name)]
    walls: dict[str, list[float]] = {}
    works: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        log = folder / "log.jsonl"
        num_records = write_log(log, options.megabytes << 20)

        def measure(name: str, number: int, program: str, *rest: str, cores: int | None = None) -> None:
            out = folder / f"{name}-{number}"
            if program == OURS:
                make_workspace(out)
            else:
                out.mkdir()
            _, wall, work = run(program, str(out), str(log), *rest, cores=cores)
            walls.setdefault(name, []).append(wall)
            works.setdefault(name, []).append(work)

        for number in range(options.runs):
            measure("ours", number, OURS, "yes")
            # on one core, where no other process makes rows: what it costs shows in the CPU time of one
            measure("ours, no redaction", number, OURS, "no", cores=1)
            measure("ours, one core", number, OURS, "yes", cores=1)
            for name in here:
                measure(name, number, PEERS[name])
        again = read_again(make_workspace(folder / "killed").folder, log, num_records)
    megabytes = options.megabytes * 1.048576
    speed = {name: round(megabytes / statistics.median(seconds), 1) for name, seconds in walls.items()}
    work = {name: round(megabytes / statistics.median(seconds), 1) for name, seconds in works.items()}
    cost = statistics.median(works["ours, one core"]) / statistics.median(works["ours, no redaction"]) - 1
    batch = (16 << 20) / (options.megabytes << 20) * num_records
    rows: list[dict[str, Any]] = [
        row("JSONL to Delta, exactly once, redacted", "MB/s", speed, here, GOALS, options.runs),
        row("the same, per CPU second", "MB/CPU-s", work, here, {}, options.runs),
        {
            "work": "redaction: CPU that it adds",
            "unit": "share",
            "ours": round(cost, 3),
            "peers": {},
            "ratio": {},
            "goal": {"at most": MOST_FOR_REDACTION},
            "runs": options.runs,
        },
        {
            "work": "two cores against one",
            "unit": "MB/s",
            "ours": speed["ours"],
            "peers": {"one core": speed["ours, one core"]},
            "ratio": {"one core": round(speed["ours"] / speed["ours, one core"], 2)},
            "goal": {},
            "runs": options.runs,
        },
        {
            "work": "records read again after a kill at 90 %",
            "unit": "records",
            "ours": again,
            "peers": {},
            "ratio": {},
            "goal": {"at most": round(batch * 1.1)},
            "runs": 1,
        },
    ]
    missing = [name for name in PEERS if name not in here]
    missed = [
        f"{one['work']}: {name}"
        for one in rows
        for name, goal in one["goal"].items()
        if (one["ours"] > goal if name == "at most" else one["ratio"].get(name, goal) < goal)
    ]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for one in rows:
            print(f"{one['work']}: {one['ours']} {one['unit']}; peers {one['peers']}; ratio {one['ratio']}; goal {one['goal']}")
        for name in missing:
            print(f"{name} is not installed here: not run")
        for one in missed:
            print(f"missed: {one}")
    raise SystemExit(1 if missed else 0)


def row(work: str, unit: str, values: dict[str, float], here: list[str], goals: dict[str, float], runs: int) -> dict[str, Any]:
    """One line of the result."""
    peers = {name: values[name] for name in here}
    ratio = {name: round(values["ours"] / value, 2) for name, value in peers.items()}
    return {"work": work, "unit": unit, "ours": values["ours"], "peers": peers, "ratio": ratio, "goal": goals, "runs": runs}


if __name__ == "__main__":
    main()
