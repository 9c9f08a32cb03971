"""How long a night takes over a long history, against the same night over none.

    python -m bench.nights [--history 10000000] [--attempts 100000] [--place 0] [--runs 1] [--keep FOLDER] [--json]

A night's log of real recorder lines (answers with token ids) is landed, built, sealed, scored, frozen and checked by the real
stages: once in an empty lake, once in one with a history of small columns (bench/history.py). `--place`: how many nights before
this one lie in its window (0 to 6), each of `--attempts`. Exit 1 where the goal is missed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import history
from pipelines import batches, invariants, monitors
from pipelines.groups import assign_splits, reach, seal, want
from pipelines.init import make_workspace
from pipelines.landing.land import land
from pipelines.rewards.score import score
from pipelines.trajectories import build
from pipelines.workspace import Workspace

GOAL = 1.5
"""Of the whole night over the history, at most so many times the time of the same night over none."""
WINDOW_DAYS = 7
EPOCH = datetime.date(1970, 1, 1)

CONFIG = """
[lake]
root = "lake"
durable = false
first_day = 2020-01-01
[[sources]]
path = "logs"
[policy]
name = "agent"
base_model = "base"
[harness]
name = "desk"
[evaluation]
held_out_share = 0.1
[[rewards.verifiers]]
name = "logged_outcome"
kind = "logged_outcome"
[judge]
groups_per_night = 0
"""


def workspace_at(folder: Path) -> Workspace:
    make_workspace(folder)
    (folder / "nightshift.toml").write_text(CONFIG, encoding="utf-8")
    base = folder / "base"
    base.mkdir()
    (base / "config.json").write_text("{}", encoding="utf-8")
    (base / "tokenizer.json").write_text('{"version": "1.0"}', encoding="utf-8")
    return Workspace.open(folder)


def write_log(path: Path, day: datetime.date, num_attempts: int) -> None:
    """`num_attempts` recorder lines of `day`, eight a task, every other task with both outcomes."""
    noon = datetime.datetime.combine(day, datetime.time(12), datetime.UTC)
    started, ended = noon.isoformat(), (noon + datetime.timedelta(seconds=1)).isoformat()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for number in range(num_attempts):
            task = number // history.SIZE
            request = f"Order {task} came without its invoice, and customer {task * 7 + 1} asks where the money of it is now."
            line = {
                "recorder": 1,
                "kind": "call",
                "call_id": f"{day}-{number}",
                "attempt_id": f"{day}-{number}",
                "harness": "desk",
                "task_id": f"{day}-{task}",
                "attempt": number % history.SIZE,
                "purpose": "production",
                "policy_version": "agent@0",
                "model": "agent",
                "request": {
                    "messages": [{"role": "system", "content": "Answer the customer."}, {"role": "user", "content": request}],
                    "tools": None,
                    "sampling": {"temperature": 1.0},
                },
                "response": {
                    "message": {"role": "assistant", "content": f"Answer {number}", "tool_calls": None},
                    "finish_reason": "stop",
                },
                "prompt_token_ids": list(range(60)),
                "token_ids": list(range(24)),
                "logprobs": [-0.5] * 24,
                "started_at": started,
                "ended_at": ended,
                "outcome": float(number % 2) if task % 2 == 0 else 1.0,
                "fault": None,
            }
            file.write(json.dumps(line) + "\n")


def night_of(workspace: Workspace, day: datetime.date) -> dict[str, float]:
    """Seconds of each step of the night of `day`, whose log lies in the workspace."""
    night = day.isoformat()
    checks = [(f"check {ask.__name__}", ask) for ask in invariants.ALL]
    steps: list[tuple[str, Callable[[], Any]]] = [
        ("land", lambda: land(workspace)),
        ("build", lambda: build(workspace)),
        ("splits", lambda: assign_splits(workspace, night)),
        ("seal", lambda: seal(workspace, night, judged=True)),
        ("reach", lambda: reach(workspace, night)),
        ("score", lambda: score(workspace, night)),
        ("freeze", lambda: batches.freeze(workspace, night)),
        *((name, lambda ask=ask: invariants.ask_tonight(workspace, ask)) for name, ask in checks),
        ("signals", lambda: monitors.measure(workspace, night)),
        ("wanted", lambda: want(workspace, night)),
    ]
    seconds: dict[str, float] = {}
    for name, step in steps:
        began = time.perf_counter()
        step()
        seconds[name] = round(time.perf_counter() - began, 2)
    return seconds


def days_of(num_history: int, num_attempts: int, place: int) -> tuple[datetime.date, datetime.date]:
    """First day of the history, and the day of the night behind it, which has `place` days of its window before it."""
    first = history.FIRST_DAY
    nights = datetime.timedelta(days=num_history // num_attempts)
    while (first + nights - EPOCH).days % WINDOW_DAYS != place:
        first += datetime.timedelta(days=1)
    return first, first + nights


def measured(workspace: Workspace, day: datetime.date, num_attempts: int) -> dict[str, float]:
    """Steps of one night on top of what the workspace holds."""
    write_log(workspace.folder / "logs" / f"{day}.jsonl", day, num_attempts)
    return night_of(workspace, day)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=int, default=10_000_000)
    parser.add_argument("--attempts", type=int, default=100_000)
    parser.add_argument("--place", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where the history is kept, for the next call")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    first, day = days_of(chosen.history, chosen.attempts, chosen.place)
    made = Path(tempfile.mkdtemp())
    kept = chosen.keep or made / "history"
    if not kept.exists():
        history.write(workspace_at(kept), chosen.history, chosen.attempts, first_day=first)
    over: list[dict[str, float]] = []
    alone: list[dict[str, float]] = []
    for run in range(chosen.runs):
        alone.append(measured(workspace_at(made / f"alone{run}"), day, chosen.attempts))
        shutil.copytree(kept, made / f"over{run}")
        over.append(measured(Workspace.open(made / f"over{run}"), day, chosen.attempts))
        shutil.rmtree(made / f"over{run}")
    best = {name: (min(run[name] for run in alone), min(run[name] for run in over)) for name in alone[0]}
    total = tuple(sum(pair[place] for pair in best.values()) for place in (0, 1))
    ratio = total[1] / total[0]
    row = {
        "work": f"a night of {chosen.attempts} over {chosen.history}, {chosen.place} nights before it in its window",
        "unit": "s",
        "ours": round(total[1], 1),
        "peers": {"over_none": round(total[0], 1)},
        "ratio": {"over_none": round(total[0] / total[1], 3)},
        "goal": {"over_none": round(1 / GOAL, 3)},
        "runs": chosen.runs,
        "steps": {name: {"over_none": pair[0], "over_history": pair[1]} for name, pair in best.items()},
    }
    if chosen.json:
        print(json.dumps([row], indent=1))
    else:
        print(f"{'step':34} {'over none':>10} {'over history':>13}")
        for name, pair in best.items():
            print(f"{name:34} {pair[0]:10.2f} {pair[1]:13.2f}")
        print(f"{'night':34} {total[0]:10.2f} {total[1]:13.2f}   {ratio:.2f} times, goal {GOAL}")
    shutil.rmtree(made, ignore_errors=True)
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
