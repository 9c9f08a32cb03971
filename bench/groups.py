"""Grouping against what others do the same work with, peer and ours on the same work in turn.

    python -m bench.groups [--part near_duplicates] [--texts 6000] [--runs 3] [--json]

Each part is a function that gives rows of {work, unit, ours, peers, ratio, goal, runs}. A peer that is not installed is not
run. Exit 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

THRESHOLD = 0.8
PERMUTATIONS = 128
WORDS = 5
"""In a shingle."""
LEAST_RECALL = 0.95
AT_LEAST = 1.0
"""Seconds that something is timed for: a tenth of a second says little on a machine that others use as well."""
NEAR_GOALS = {"datasketch": 50.0, "rensa": 1.0}

Pairs = set[tuple[int, int]]


def labelled(number: int) -> tuple[list[str], Pairs]:
    """`number` requests of 100 to 400 words, and the pairs of them that are near-copies of each other by how they were made.

    A third are templates with two to five copies, in each of which one word of a hundred is another; the others are like
    nothing else. Words are drawn by a law of the kind that languages follow, out of 20,000.
    """
    draws = random.Random("near-duplicates")
    vocabulary = ["".join(draws.choices("abcdefghijklmnopqrstuvwxyz", k=draws.randint(2, 10))) for _ in range(20_000)]
    weights = [1 / (rank + 10) for rank in range(len(vocabulary))]
    texts: list[str] = []
    pairs: Pairs = set()
    while len(texts) < number:
        template = draws.choices(vocabulary, weights, k=draws.randint(100, 400))
        first = len(texts)
        for _ in range(draws.randint(2, 5) if draws.random() < 1 / 3 else 1):
            words = list(template)
            for place in draws.sample(range(len(words)), len(words) // 100) if len(texts) > first else ():
                words[place] = draws.choice(vocabulary)
            texts.append(" ".join(words).capitalize() + ".")
        pairs |= {(one, other) for one in range(first, len(texts)) for other in range(one + 1, len(texts))}
    order = list(range(len(texts)))
    draws.shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    moved = {(min(place[one], place[other]), max(place[one], place[other])) for one, other in pairs}
    return [texts[old] for old in order], moved


def shingles(text: str) -> set[str]:
    """As the peers' guides make them: a loop of Python over the words of one text."""
    words = text.lower().split()
    return {" ".join(words[place : place + WORDS]) for place in range(len(words) - WORDS + 1)}


def by_nightshift(texts: list[str]) -> Pairs:
    """Pairs in one cluster, the way that stage 2 and stage 3 go: signatures, bands, verified pairs, components."""
    from pipelines.groups.near import components, near_pairs
    from pipelines.signatures import Making, matrix_of

    table, _ = matrix_of(texts, Making(PERMUTATIONS, WORDS))
    clusters: dict[int, list[int]] = defaultdict(list)
    for place, label in enumerate(components(len(texts), *near_pairs(table, THRESHOLD)).tolist()):
        clusters[label].append(place)
    return {(one, other) for members in clusters.values() for one in members for other in members if one < other}


def by_datasketch(texts: list[str]) -> Pairs:
    from datasketch import MinHash, MinHashLSH

    # by its own choice of bands it finds 84 % of the labelled pairs; these find as many as ours
    index = MinHashLSH(num_perm=PERMUTATIONS, params=(21, 6))
    made = []
    for place, text in enumerate(texts):
        one = MinHash(num_perm=PERMUTATIONS)
        one.update_batch([shingle.encode() for shingle in shingles(text)])
        index.insert(place, one)
        made.append(one)
    return _pairs((place, index.query(one)) for place, one in enumerate(made))


def by_rensa(texts: list[str]) -> Pairs:
    from rensa import RMinHash, RMinHashLSH

    index = RMinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, num_bands=16)
    made = []
    for place, text in enumerate(texts):
        one = RMinHash(num_perm=PERMUTATIONS, seed=1)
        one.update(list(shingles(text)))
        index.insert(place, one)
        made.append(one)
    return _pairs((place, index.query(one)) for place, one in enumerate(made))


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """(what it gives, wall seconds, CPU seconds of all threads), means over as many turns as fill AT_LEAST seconds."""
    turns, wall, cpu = 0, time.perf_counter(), time.process_time()
    while True:
        found, turns = work(), turns + 1
        taken = time.perf_counter() - wall
        if taken >= AT_LEAST:
            return found, taken / turns, (time.process_time() - cpu) / turns


def _pairs(found: Iterable[tuple[int, list[int]]]) -> Pairs:
    return {(min(one, other), max(one, other)) for one, others in found for other in others if one != other}


def near_duplicates(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Texts per second from texts to near-copies, and how many of the labelled pairs were found."""
    texts, truth = labelled(options.texts)
    ways: dict[str, Callable[[list[str]], Pairs]] = {"ours": by_nightshift, "datasketch": by_datasketch, "rensa": by_rensa}
    here = [name for name in NEAR_GOALS if importlib.util.find_spec(name)]
    wall: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    recall: dict[str, float] = {}
    precision: dict[str, float] = {}
    for name in ["ours", *here]:
        ways[name](texts[:300])  # imports, and what is made at first use
    for _ in range(options.runs):
        for name in ["ours", *here]:
            found, of_wall, of_cpu = timed(lambda name=name: ways[name](texts))
            wall[name].append(of_wall)
            cpu[name].append(of_cpu)
            recall[name] = round(len(found & truth) / len(truth), 4)
            precision[name] = round(len(found & truth) / max(len(found), 1), 4)
    speed, by_cpu = (
        {name: round(len(texts) / statistics.median(taken), 1) for name, taken in seconds.items()} for seconds in (wall, cpu)
    )
    goals = {name: NEAR_GOALS[name] for name in here}
    return [
        row("near-duplicates, texts to pairs", "texts/s", speed, here, goals, options.runs),
        row("near-duplicates, texts to pairs, by CPU time", "texts/CPU s", by_cpu, here, {}, options.runs),
        row("near-duplicates: recall of the labelled pairs", "share", recall, here, {}, options.runs)
        | {"goal": {"at least": LEAST_RECALL}},
        row("near-duplicates: found pairs that are labelled", "share", precision, here, {}, options.runs),
    ]


PARTS: dict[str, Callable[[argparse.Namespace], list[dict[str, Any]]]] = {"near_duplicates": near_duplicates}


def row(work: str, unit: str, values: dict[str, float], here: list[str], goals: dict[str, float], runs: int) -> dict[str, Any]:
    """One line of the result."""
    peers = {name: values[name] for name in here}
    ratio = {name: round(values["ours"] / value, 2) for name, value in peers.items() if value}
    return {"work": work, "unit": unit, "ours": values["ours"], "peers": peers, "ratio": ratio, "goal": goals, "runs": runs}


def missed(one: dict[str, Any]) -> list[str]:
    """Names of the goals that a line does not reach; `at least` and `at most` bind our own value, others the ratio to a peer."""
    bounds = {"at least": lambda goal: one["ours"] >= goal, "at most": lambda goal: one["ours"] <= goal}
    reached = {
        name: bounds[name](goal) if name in bounds else one["ratio"].get(name, goal) >= goal for name, goal in one["goal"].items()
    }
    return [f"{one['work']}: {name}" for name, held in reached.items() if not held]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=sorted(PARTS), action="append")
    parser.add_argument("--texts", type=int, default=6000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [one for name in options.part or PARTS for one in PARTS[name](options)]
    failures = [name for one in rows for name in missed(one)]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for one in rows:
            print(f"{one['work']}: {one['ours']} {one['unit']}; peers {one['peers']}; ratio {one['ratio']}; goal {one['goal']}")
        for name in NEAR_GOALS:
            if importlib.util.find_spec(name) is None:
                print(f"{name} is not installed here: not run")
        for name in failures:
            print(f"missed: {name}")
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
