"""One attempt that several logs tell is one trajectory, and two honest attempts stay two, whatever order the logs come in."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.doctor import digest
from pipelines.init import make_workspace as make_own_workspace
from pipelines.landing.land import land
from pipelines.lineage import ask, why
from pipelines.schemas import DUPLICATES, ROLLOUTS, TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import rows_of
from tests.landing.lines import line, write_lines

ROOT = Path(__file__).resolve().parents[2]
DAY = "2026-11-28"


def message(attempt: int, number: int, *, of: int = 3) -> dict[str, Any]:
    """An answer: all but the last of an attempt call a tool, whose ids are random like the server's."""
    if number == of - 1:
        return {"role": "assistant", "content": "It is done."}
    function = {"name": "look_up", "arguments": json.dumps({"order": number})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{attempt}a{number}bQe7Zk3Ww9Xy2Lm", "type": "function", "function": function}],
    }


def conversation(attempt: int, number: int) -> list[dict[str, Any]]:
    """What stands before answer `number`."""
    said: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Look it up."}]
    for earlier in range(number):
        called = message(attempt, earlier)
        said += [called, {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": f"found {earlier}"}]
    return said


def gateway(attempt: int, *, minute: int = 0, answers: int = 3, exact: bool = False) -> list[bytes]:
    """The calls of an attempt as a gateway logs them."""
    rows = []
    for number in range(answers):
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message(attempt, number)}
        response: dict[str, Any] = {
            "id": f"chatcmpl-{attempt}x{number}Yq8Rt5Vb2Nm7Kp4",
            "object": "chat.completion",
            "model": "qwen3",
            "choices": [choice],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2},
        }
        if exact:
            tokens = [{"token": f"token_id:{token}", "logprob": -0.5} for token in (4, 5)]
            choice["logprobs"] = {"content": tokens}
            response["prompt_token_ids"] = [1, 2, 3]
        request = {"model": "qwen3", "messages": conversation(attempt, number)}
        time = f"2026-11-20T10:{minute:02}:{number:02}Z"
        rows.append(line({"request": request, "response": response, "timestamp": time}))
    return rows


def harness(attempt: int, *, minute: int = 0, answers: int = 3, end: bool = True, session: str | None = None) -> list[bytes]:
    """The same attempt as a coding agent's session file."""
    name = session or f"session-{attempt}"
    rows: list[dict[str, Any]] = []

    def add(kind: str, said: dict[str, Any]) -> None:
        number = len(rows)
        rows.append(
            {
                "uuid": f"u{number}",
                "parentUuid": f"u{number - 1}" if number else None,
                "isSidechain": False,
                "sessionId": name,
                "cwd": "/repo",
                "version": "1.0.30",
                "timestamp": f"2026-11-20T10:{minute:02}:{number:02}Z",
                "type": kind,
                "message": said,
            }
        )

    add("user", {"role": "user", "content": "Look it up."})
    for number in range(answers):
        told = message(attempt, number)
        content: list[dict[str, Any]] = [{"type": "text", "text": told["content"]}] if told["content"] else []
        for call in told.get("tool_calls", ()):
            function = call["function"]
            content.append(
                {"type": "tool_use", "id": call["id"], "name": function["name"], "input": json.loads(function["arguments"])}
            )
        answer = {"id": f"msg_01{attempt}c{number}dHj6Fg4Ds2Aa9Pp", "role": "assistant", "model": "qwen3", "content": content}
        add("assistant", answer | {"stop_reason": "end_turn", "usage": {"input_tokens": 10, "output_tokens": 2}})
        if told.get("tool_calls") and (end or number < answers - 1):
            result = {"type": "tool_result", "tool_use_id": told["tool_calls"][0]["id"], "content": f"found {number}"}
            add("user", {"role": "user", "content": [result]})
    return [line(row) for row in rows]


FORMATS = {"gateway": "openai_chat", "harness": "claude_code"}
Log = tuple[str, list[bytes]]
"""Format and lines."""


def delivered(folder: Path, logs: Sequence[Log], *, at_once: bool = False) -> Workspace:
    workspace = make_workspace(folder / "w")
    for number, (name, lines) in enumerate(logs):
        land(workspace, [write_lines(folder / f"{number}-{name}.jsonl", lines)], format=FORMATS[name], day=DAY)
        if not at_once:
            build(workspace)
    build(workspace)
    return workspace


def trajectories(workspace: Workspace) -> list[dict[str, Any]]:
    return rows_of(workspace, TRAJECTORIES.name)


def left(workspace: Workspace) -> Counter[tuple[str, str, float | None]]:
    return Counter((row["kind"], row["trajectory_id"], row["similarity"]) for row in rows_of(workspace, DUPLICATES.name))


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(range(2))))
def test_gateway_and_session_file_are_one_attempt(order: tuple[int, ...], at_once: bool, tmp_path: Path) -> None:
    logs: list[Log] = [("gateway", gateway(1)), ("harness", harness(1))]
    workspace = delivered(tmp_path, [logs[place] for place in order], at_once=at_once)
    (kept,) = trajectories(workspace)
    assert kept["format"] == "openai_chat"  # its system prompt is one turn more
    assert (kept["num_sampled_turns"], len(kept["record_ids"]), len(kept["other_logs"])) == (3, 3, 1)
    assert left(workspace) == {("other_log", kept["trajectory_id"], 1.0): 6}
    assert workspace.queries.run("trajectories/unaccounted").num_rows == 0
    assert len(rows_of(workspace, ROLLOUTS.name)) == 2
    assert build(workspace).why_nothing is not None


def test_the_story_names_the_lines_of_both_logs(tmp_path: Path) -> None:
    workspace = delivered(tmp_path, [("gateway", gateway(1)), ("harness", harness(1))])
    (kept,) = trajectories(workspace)
    told = why(workspace, kept["trajectory_id"])
    assert [Path(source["file"]).name for source in told["sources"]] == ["0-gateway.jsonl"] * 3
    assert [(Path(row["file"]).name, row["line"], row["format"]) for row in told["other_logs"]] == [
        ("1-harness.jsonl", number, "claude_code") for number in range(1, 7)
    ]
    forward = ask(workspace, f"{told['other_logs'][0]['file']}:2")
    assert forward["trajectories"] == [kept["trajectory_id"]]


def test_exact_tokens_are_kept_before_everything_else(tmp_path: Path) -> None:
    more = harness(1)
    workspace = delivered(tmp_path, [("harness", more), ("gateway", gateway(1, answers=2, exact=True))])
    rows = {row["format"]: row for row in trajectories(workspace)}
    assert rows["openai_chat"]["exact_tokens"] and rows["openai_chat"]["num_sampled_turns"] == 2
    # the last answer is in the session file alone, and stays there
    assert rows["claude_code"]["num_sampled_turns"] == 1
    assert set(rows["claude_code"]["copied_from"]) == {rows["openai_chat"]["trajectory_id"]}


@pytest.mark.parametrize("make", [gateway, harness])
def test_honest_attempts_that_came_out_identical_stay_two(make: Callable[..., list[bytes]], tmp_path: Path) -> None:
    name = make.__name__
    workspace = delivered(tmp_path, [(name, make(1)), (name, make(2))])
    first, second = trajectories(workspace)
    assert first["content_id"] == second["content_id"] and first["task_key"] == second["task_key"]
    assert (first["num_sampled_turns"], second["num_sampled_turns"]) == (3, 3)
    assert not rows_of(workspace, DUPLICATES.name)


def test_two_identical_attempts_in_two_logs_each_are_two(tmp_path: Path) -> None:
    """At the same second, as n attempts at temperature 0 are: only ids tell which log is of which."""
    logs: list[Log] = [(name, make(attempt)) for attempt in (1, 2) for name, make in (("gateway", gateway), ("harness", harness))]
    workspace = delivered(tmp_path, logs)
    rows = trajectories(workspace)
    assert [(row["format"], row["num_sampled_turns"], len(row["other_logs"])) for row in rows] == [("openai_chat", 3, 1)] * 2
    assert len({row["content_id"] for row in rows}) == 1


def test_equal_text_at_one_time_is_no_evidence(tmp_path: Path) -> None:
    workspace = delivered(tmp_path, [("gateway", gateway(1)), ("harness", harness(2))])
    assert sorted(row["num_sampled_turns"] for row in trajectories(workspace)) == [3, 3]
    assert not rows_of(workspace, DUPLICATES.name)


def test_a_session_exported_as_it_ran_is_unfinished(tmp_path: Path) -> None:
    early = harness(1, answers=2, session="exported early")
    for logs in ([early, harness(1)], [harness(1), early]):
        workspace = delivered(tmp_path / str(len(logs[0])), [("harness", lines) for lines in logs])
        (kept,) = trajectories(workspace)
        assert (kept["num_sampled_turns"], kept["link"], len(kept["other_logs"])) == (3, None, 1)
        assert left(workspace) == {("unfinished", kept["trajectory_id"], 5 / 6): 5}


def test_a_session_that_ended_and_was_taken_up_again_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    first = harness(1)
    rows = [json.loads(text) | {"sessionId": "resumed"} for text in first]
    asked = rows[0] | {"uuid": "u6", "parentUuid": "u5", "timestamp": "2026-11-20T11:00:00Z"}
    answered = rows[5] | {"uuid": "u7", "parentUuid": "u6", "timestamp": "2026-11-20T11:00:01Z"}
    answered["message"] = rows[5]["message"] | {"id": "msg_01zzzzz7Hj6Fg4Ds2Aa9Pp"}
    asked["message"] = {"role": "user", "content": "And the next?"}
    second = [line(row) for row in [*rows, asked, answered]]
    workspace = delivered(tmp_path, [("harness", second), ("harness", first)])
    by_length = {row["num_turns"]: row for row in trajectories(workspace)}
    assert {turns: row["num_sampled_turns"] for turns, row in by_length.items()} == {6: 3, 8: 1}
    assert by_length[8]["parent_trajectory_id"] == by_length[6]["trajectory_id"]


@pytest.mark.parametrize("seed", range(4))
def test_a_log_that_goes_on_after_it_was_copied_keeps_its_answers(seed: int, tmp_path: Path) -> None:
    """Whatever ids the sessions have, and although it ends later than its copy by now."""
    names = [f"session-{seed}-{place}" for place in range(2)]
    whole = [json.loads(text) for text in harness(1)]

    def on(session: str, number: int, minute: int) -> list[dict[str, Any]]:
        asked = {"role": "user", "content": f"More {minute}?"}
        answered = whole[5]["message"] | {"id": f"msg_01q{minute}e{number}Hj6Fg4Ds2Aa9Pp"}
        place = 6 + 2 * number
        row = {**whole[0], "sessionId": session}
        return [
            row | {"uuid": f"v{minute}", "parentUuid": "u5", "timestamp": f"2026-11-20T11:{minute}:00Z", "message": asked},
            row
            | {"type": "assistant", "uuid": f"v{minute + 1}", "parentUuid": f"v{minute}"}
            | {"timestamp": f"2026-11-20T11:{minute}:{place:02}Z", "message": answered},
        ]

    def owner(workspace: Workspace) -> str:
        ids = {row["trajectory_id"]: row for row in trajectories(workspace)}
        assert Counter(row["num_sampled_turns"] for row in ids.values()).total() == 2
        return max(ids, key=lambda one: ids[one]["num_sampled_turns"])

    original = [{**row, "sessionId": names[0]} for row in whole]
    copy = [{**row, "sessionId": names[1]} for row in whole] + on(names[1], 0, 10)
    workspace = delivered(tmp_path, [("harness", [line(row) for row in rows]) for rows in (original, copy)])
    before = owner(workspace)
    grown = on(names[0], 0, 40)
    land(workspace, [write_lines(tmp_path / "grown.jsonl", [line(row) for row in grown])], format="claude_code", day=DAY)
    build(workspace)
    assert owner(workspace) == before
    assert sum(row["num_sampled_turns"] for row in trajectories(workspace)) == 5


def test_what_only_the_other_log_knows_is_taken_over(tmp_path: Path) -> None:
    """An evaluation harness's log has task and outcome, the gateway has the tokens."""
    workspace = make_workspace(tmp_path / "w")
    said = [*conversation(1, 2), message(1, 2)]
    tau = {
        "task_id": 7,
        "reward": 1.0,
        "info": {"task": {"instruction": "x"}, "source": "user", "user_cost": 0.0},
        "traj": said,
        "trial": 0,
    }
    path = tmp_path / "results.json"
    path.write_text(json.dumps([tau]))
    land(workspace, [path], day=DAY)
    build(workspace)
    (alone,) = trajectories(workspace)
    land(workspace, [write_lines(tmp_path / "calls.jsonl", gateway(1, exact=True))], format="openai_chat", day=DAY)
    build(workspace)
    (kept,) = trajectories(workspace)
    assert (kept["format"], kept["exact_tokens"], kept["model"]) == ("openai_chat", True, "qwen3")
    for name in ("task_id", "task_key", "harness", "attempt", "outcome", "outcome_logged", "outcome_source"):
        assert kept[name] == alone[name] is not None
    assert left(workspace) == {("other_log", kept["trajectory_id"], 1.0): 1}


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), builds=st.booleans())
def test_the_same_tables_whatever_the_order(seed: int, builds: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    draw = random.Random(seed)
    logs: list[Log] = [
        ("gateway", gateway(1)),
        ("harness", harness(1)),
        ("harness", harness(1, answers=draw.randint(1, 2), session="exported early")),
        ("gateway", gateway(2, answers=draw.randint(1, 3), exact=True)),
        ("harness", harness(2)),
        ("harness", harness(3)),
    ]
    plain = delivered(tmp_path_factory.mktemp("plain"), logs, at_once=True)
    folder = tmp_path_factory.mktemp("shuffled")
    shuffled = make_workspace(folder / "w")
    pieces = [(name, one) for name, lines in logs for one in lines]
    draw.shuffle(pieces)
    while pieces:
        number = draw.randint(1, 9)
        given, pieces = pieces[:number], pieces[number:]
        for name in FORMATS:
            lines = [one for other, one in given if other == name]
            if lines:
                path = write_lines(folder / f"{len(pieces)}-{name}.jsonl", lines)
                land(shuffled, [path], format=FORMATS[name], day=DAY)
        if builds:
            build(shuffled)
    build(shuffled)
    names = Counter(
        call["call_id"] for row in trajectories(shuffled) for call in json.loads(row["calls"]) if row["num_sampled_turns"]
    )
    assert set(names.values()) == {1}
    assert digest(shuffled) == digest(plain)
    assert build(shuffled).why_nothing is not None


@pytest.mark.parametrize("table", [ROLLOUTS.name, TRAJECTORIES.name, DUPLICATES.name])
def test_killed_between_its_tables_the_next_build_heals(table: str, tmp_path: Path) -> None:
    logs: list[Log] = [("harness", harness(1)), ("gateway", gateway(1))]
    whole = delivered(tmp_path / "whole", logs, at_once=True)
    killed = delivered(tmp_path / "killed", logs[:1])
    land(killed, [write_lines(tmp_path / "late.jsonl", logs[1][1])], format="openai_chat", day=DAY)
    program = f"from pipelines.trajectories import build; from pipelines.workspace import Workspace; build(Workspace.open({str(killed.folder)!r}))"
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "NIGHTSHIFT_KILL_AT": f"{table}:after_commit"}
    )
    assert child.returncode == -signal.SIGKILL
    build(killed)
    assert digest(killed) == digest(whole)


def test_of_all_real_logs_one_pair_is_one_attempt(shared_logs: Path, tmp_path: Path) -> None:
    """OpenHands' own list of messages beside its log of the calls: the same ids of Anthropic's, in six answers."""
    workspace = make_own_workspace(tmp_path / "w")
    land(workspace, [shared_logs], day=DAY)
    build(workspace)
    assert len(rows_of(workspace, ROLLOUTS.name)) - len(trajectories(workspace)) == 1
    (kept,) = (row for row in trajectories(workspace) if row["other_logs"])
    assert (kept["format"], kept["num_sampled_turns"]) == ("openhands_completions", 6)
    found = [row for row in rows_of(workspace, DUPLICATES.name) if row["kind"] in ("other_log", "unfinished")]
    assert [(row["kind"], row["similarity"]) for row in found] == [("other_log", 1.0)]
    assert workspace.queries.run("trajectories/unaccounted").num_rows == 0
