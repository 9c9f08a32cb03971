"""An answer that lies in several logs is sampled once: in the attempt that was logged first, whatever order they come in."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.doctor import digest
from pipelines.landing.land import land
from pipelines.schemas import DUPLICATES, TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import rows_of
from tests.landing.lines import line, write_lines

ROOT = Path(__file__).resolve().parents[2]
DAY = "2026-11-28"
NAMES = ("first", "second", "third")


def name(session: int, number: int) -> str:
    return f"msg_01{session}abcdefghijkl{number:04}"


def row(session: str, number: int, **changes: Any) -> dict[str, Any]:
    return {
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number else None,
        "isSidechain": False,
        "sessionId": session,
        "cwd": "/repo",
        "version": "1.0.30",
        "timestamp": f"2026-11-{20 + number // 20}T10:{number:02}:00.000Z",
        **changes,
    }


def says(session: str, number: int, who: int) -> list[dict[str, Any]]:
    """A prompt and its answer; `who` names the process that had it sampled."""
    asked = {"role": "user", "content": f"question {number}"}
    answered = {
        "id": name(who, number),
        "role": "assistant",
        "model": f"claude-{who}",
        "content": [{"type": "text", "text": f"answer {number} of {who}"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 10 * who + 1},
    }
    return [
        row(session, 2 * number, type="user", message=asked),
        row(session, 2 * number + 1, type="assistant", message=answered),
    ]


def files(lengths: tuple[int, int, int] = (2, 5, 9)) -> dict[str, list[bytes]]:
    """Three logs of one conversation that was resumed twice, each under a new name with all earlier lines in it."""
    found = {}
    for place, session in enumerate(NAMES):
        rows: list[dict[str, Any]] = []
        for number in range(lengths[place]):
            who = next(other for other, length in enumerate(lengths) if number < length)
            rows += says(session, number, who)
        found[session] = [line(value) for value in rows]
    return found


def landed(folder: Path, lines: dict[str, list[bytes]], *, at_once: bool = True) -> Workspace:
    workspace = make_workspace(folder / "w")
    for session, of_file in lines.items():
        land(workspace, [write_lines(folder / f"{session}.jsonl", of_file)], day=DAY)
        if not at_once:
            build(workspace)
    build(workspace)
    return workspace


def by_length(workspace: Workspace) -> dict[int, dict[str, Any]]:
    """Rows by the number of their turns."""
    return {row["num_turns"]: row for row in rows_of(workspace, TRAJECTORIES.name)}


def sampled(workspace: Workspace) -> Counter[str]:
    return Counter(call["call_id"] for row in rows_of(workspace, TRAJECTORIES.name) for call in json.loads(row["calls"]))


def test_what_a_resumed_log_copies_is_context_and_counts_once(tmp_path: Path) -> None:
    rows = by_length(landed(tmp_path, files()))
    first, second, third = rows[4], rows[10], rows[18]
    assert (first["link"], first["parent_trajectory_id"], first["num_sampled_turns"]) == (None, None, 2)
    assert (second["link"], second["parent_trajectory_id"], second["num_shared_turns"]) == (
        "continuation",
        first["trajectory_id"],
        4,
    )
    assert (third["link"], third["parent_trajectory_id"], third["num_shared_turns"]) == (
        "continuation",
        second["trajectory_id"],
        10,
    )
    assert [row["num_sampled_turns"] for row in (second, third)] == [3, 4]
    assert [row["model"] for row in (first, second, third)] == ["claude-0", "claude-1", "claude-2"]
    assert [row["num_reply_tokens"] for row in (first, second, third)] == [2, 33, 84]
    assert [row["num_prompt_tokens"] for row in (first, second, third)] == [200, 300, 400]
    assert set(third["copied_from"]) == {first["trajectory_id"], second["trajectory_id"]}
    turns = json.loads(third["turns"])
    assert [turn["call"] for turn in turns if turn["sampled"]] == [0, 1, 2, 3]
    assert not any(turn["sampled"] for turn in turns[: third["num_shared_turns"]])


def test_a_log_that_only_repeats_another_is_the_same_attempt(tmp_path: Path) -> None:
    lines = files((3, 3, 3))
    workspace = landed(tmp_path, lines)
    assert set(sampled(workspace).values()) == {1}
    (kept,) = rows_of(workspace, TRAJECTORIES.name)
    assert (kept["num_sampled_turns"], kept["num_reply_tokens"], len(kept["other_logs"])) == (3, 3, 2)
    left = rows_of(workspace, DUPLICATES.name)
    assert {(row["kind"], row["trajectory_id"], row["similarity"]) for row in left} == {("other_log", kept["trajectory_id"], 1.0)}
    assert len(left) == 12
    assert workspace.queries.run("trajectories/unaccounted").num_rows == 0


def test_an_earlier_log_that_comes_later_takes_its_answers_back(tmp_path: Path) -> None:
    lines = files()
    workspace = landed(tmp_path, {"third": lines["third"]})
    assert [row["num_sampled_turns"] for row in rows_of(workspace, TRAJECTORIES.name)] == [9]
    land(workspace, [write_lines(tmp_path / "first.jsonl", lines["first"])], day=DAY)
    assert build(workspace).trajectories == 2
    rows = by_length(workspace)
    assert (rows[18]["num_sampled_turns"], rows[18]["num_shared_turns"]) == (7, 4)
    assert rows[18]["task_key"] != rows[4]["task_key"]
    assert build(workspace).why_nothing is not None


def test_ids_that_count_are_no_names(tmp_path: Path) -> None:
    lines = [says(session, number, 0) for session in ("a", "b") for number in range(2)]
    for pair in lines:
        pair[1]["message"]["id"] = f"msg_{pair[1]['uuid']}"
    halves = {"a": [line(row) for pair in lines[:2] for row in pair], "b": [line(row) for pair in lines[2:] for row in pair]}
    workspace = landed(tmp_path, halves)
    assert [row["num_sampled_turns"] for row in rows_of(workspace, TRAJECTORIES.name)] == [2, 2]


def test_one_id_for_every_answer_is_no_name(tmp_path: Path) -> None:
    lines: dict[str, list[bytes]] = {}
    for place, text in enumerate("ab"):
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"task {text}"}]
        lines[text] = []
        for number in range(2):
            said = {"role": "assistant", "content": f"{text}{number}"}
            value = {
                "request": {"model": "m", "messages": list(messages)},
                "response": {"id": "chatcmpl-00000000000000000001", "model": "m", "choices": [{"index": 0, "message": said}]},
                "timestamp": f"2026-11-20T1{place}:00:0{number}Z",
            }
            lines[text].append(line(value))
            messages += [said, {"role": "user", "content": f"on {number}"}]
    workspace = landed(tmp_path, lines)
    assert [row["num_sampled_turns"] for row in rows_of(workspace, TRAJECTORIES.name)] == [2, 2]
    assert all(row["link"] is None for row in rows_of(workspace, TRAJECTORIES.name))


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), builds=st.booleans())
def test_the_same_tables_whatever_the_order_and_the_builds_between(
    seed: int, builds: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    draw = random.Random(seed)
    lengths = (draw.randint(1, 3), draw.randint(3, 5), draw.randint(4, 8))
    plain = landed(tmp_path_factory.mktemp("plain"), files(lengths))
    folder = tmp_path_factory.mktemp("shuffled")
    shuffled = make_workspace(folder / "w")
    pieces = [(name, one) for name, of_file in files(lengths).items() for one in of_file]
    pieces += draw.sample(pieces, 4)  # some twice
    draw.shuffle(pieces)
    while pieces:
        number = draw.randint(1, 10)
        given, pieces = list(dict.fromkeys(pieces[:number])), pieces[number:]  # twice in one file is two records
        path = folder / f"{len(pieces)}.jsonl"
        land(shuffled, [write_lines(path, [one for _, one in given])], format="claude_code", day=DAY)
        if builds:
            build(shuffled)
    build(shuffled)
    assert set(sampled(shuffled).values()) == {1}
    assert digest(shuffled) == digest(plain)


def test_killed_before_it_took_answers_back_the_next_build_does(tmp_path: Path) -> None:
    lines = files()
    whole = landed(tmp_path / "whole", lines)
    killed = landed(tmp_path / "killed", {"third": lines["third"], "second": lines["second"]})
    land(killed, [write_lines(tmp_path / "killed" / "first.jsonl", lines["first"])], day=DAY)
    program = f"from pipelines.trajectories import build; from pipelines.workspace import Workspace; build(Workspace.open({str(killed.folder)!r}))"
    step = f"{TRAJECTORIES.name}:after_commit"
    child = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "NIGHTSHIFT_KILL_AT": step})
    assert child.returncode == -signal.SIGKILL
    build(killed)
    assert digest(killed) == digest(whole)


def test_real_logs_resumed_under_a_new_name(shared_logs: Path, tmp_path: Path) -> None:
    real = shared_logs / "claude_code" / "real"
    largest = sorted(real.rglob("[!a]*.jsonl"), key=lambda path: -path.stat().st_size)[:4]  # agent-*.jsonl are subagents
    alone = make_workspace(tmp_path / "alone")
    land(alone, largest, day=DAY)
    build(alone)
    both = make_workspace(tmp_path / "both")
    copies = []
    for number, path in enumerate(largest):
        rows = [json.loads(text) for text in path.read_bytes().splitlines() if text.strip()]
        for value in rows:
            if "sessionId" in value:
                value["sessionId"] = f"resumed-{number}"
        last = next(value for value in reversed(rows) if value.get("uuid") and not value.get("isSidechain"))
        new = says(f"resumed-{number}", 99, number)
        new[0] |= {"parentUuid": last["uuid"], "timestamp": "2026-11-20T10:00:00Z"}
        new[1] |= {"timestamp": "2026-11-20T10:00:01Z"}
        copies.append(write_lines(tmp_path / f"{number}.jsonl", [line(value) for value in [*rows, *new]]))
    land(both, copies, day=DAY)
    build(both)
    land(both, largest, day=DAY)
    build(both)
    named = {found: number for found, number in sampled(alone).items() if found and len(found) > 16}
    again = sampled(both)
    assert len(named) > 10
    assert {found: again[found] for found in named} == named
    assert all(again[name(number, 99)] == 1 for number in range(len(copies)))
    assert both.queries.run("trajectories/unaccounted").num_rows == 0
