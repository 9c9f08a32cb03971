from __future__ import annotations

import datetime
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from pipelines import harness
from pipelines.errors import EngineError, HarnessError
from pipelines.workspace import Workspace
from tests.conftest import make_workspace

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


def clock() -> datetime.datetime:
    return NOON


def attempts_at(
    workspace: Workspace, served: tuple[str, Any], tasks: list[dict[str, Any]], **changed: Any
) -> list[harness.Rollout]:
    asked: dict[str, Any] = {
        "purpose": "production",
        "policy_version": "p@0",
        "attempts": 2,
        "log": workspace.folder / "logs" / "calls.jsonl",
        "url": served[0],
        "model": served[1].policy.name,
        "seed": 1,
        "clock": clock,
    }
    return harness.run(workspace, tasks, **{**asked, **changed})


def lines_of(workspace: Workspace) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (workspace.folder / "logs" / "calls.jsonl").read_text().splitlines()]


TASKS = [{"task_id": "a", "text": "first"}, {"task_id": "b", "text": "second"}]


def test_every_attempt_is_recorded_with_its_exact_tokens(agent: Workspace, served: tuple[str, Any]) -> None:
    rollouts = attempts_at(agent, served, TASKS)
    assert [(rollout.task_id, rollout.attempt, rollout.fault) for rollout in rollouts] == [
        ("a", 0, None),
        ("a", 1, None),
        ("b", 0, None),
        ("b", 1, None),
    ]
    lines = {line["attempt_id"]: line for line in lines_of(agent)}
    assert len(lines) == 4 and len({line["call_id"] for line in lines.values()}) == 4
    policy = served[1].policy
    for rollout in rollouts:
        line = lines[rollout.attempt_id]
        assert (line["recorder"], line["kind"], line["harness"], line["purpose"]) == (1, "call", "desk", "production")
        assert (line["policy_version"], line["model"], line["fault"]) == ("p@0", policy.name, None)
        assert line["started_at"] == line["ended_at"] == "2026-11-20T12:00:00.000000Z"
        assert line["prompt_token_ids"] == policy.render(line["request"]["messages"], None)
        assert len(line["token_ids"]) == len(line["logprobs"]) == rollout.num_sampled_tokens > 0
        assert line["request"]["sampling"]["temperature"] == 1.0 and line["request"]["tools"] is None
        assert rollout.task_key == agent.identity.task_key("desk", rollout.task_id)
        asked, answered = rollout.turns
        assert asked["sampled"] is False and answered["sampled"] is True and answered["call"] == 0
        assert answered["content"] == policy.text_of(line["token_ids"])
        assert answered["finish_reason"] == line["response"]["finish_reason"]
    seeds = [line["request"]["sampling"]["seed"] for line in lines.values()]
    assert len(set(seeds)) == 4


def test_a_run_goes_on_where_it_was_cut_off_and_the_same_run_again_makes_nothing(
    agent: Workspace, served: tuple[str, Any]
) -> None:
    log = agent.folder / "logs" / "calls.jsonl"
    whole = attempts_at(agent, served, TASKS)
    written = log.read_bytes()
    assert attempts_at(agent, ("http://127.0.0.1:9/v1", served[1]), TASKS) != []  # nothing is asked of any server
    assert log.read_bytes() == written
    kept = written.splitlines(keepends=True)
    log.write_bytes(kept[0] + kept[2] + kept[1][:50])  # the third write was torn, the fourth never happened
    again = attempts_at(agent, served, TASKS)
    assert [(rollout.attempt_id, rollout.turns) for rollout in again] == [
        (rollout.attempt_id, rollout.turns) for rollout in whole
    ]
    readable = [json.loads(line) for line in log.read_bytes().split(b"\n") if line.endswith(b"}")]
    sampled = [{line["call_id"]: line["token_ids"] for line in lines} for lines in (readable, map(json.loads, kept))]
    assert len(readable) == 4 and sampled[0] == sampled[1]
    others = attempts_at(agent, served, TASKS, tag="another")
    assert not {rollout.attempt_id for rollout in others} & {rollout.attempt_id for rollout in whole}


def test_the_same_seed_samples_the_same_in_another_workspace(agent: Workspace, served: tuple[str, Any], tmp_path: Path) -> None:
    other = make_workspace(tmp_path / "other", (agent.folder / "nightshift.toml").read_text())
    (other.folder / "harness.py").write_text((agent.folder / "harness.py").read_text())
    (other.folder / ".keys" / "identity").write_text("ab" * 32)
    other = Workspace(other.folder, other.config, type(other.identity)(b"another key of 16"), other.redaction_key)
    one, two = attempts_at(agent, served, TASKS), attempts_at(other, served, TASKS)
    assert [rollout.turns for rollout in one] == [rollout.turns for rollout in two]
    assert not {rollout.attempt_id for rollout in one} & {rollout.attempt_id for rollout in two}
    three = attempts_at(agent, served, TASKS, seed=2, tag="3")
    assert [rollout.turns for rollout in three] != [rollout.turns for rollout in one]


def test_a_second_call_extends_the_first_and_both_answers_are_sampled_turns(agent: Workspace, served: tuple[str, Any]) -> None:
    (rollout,) = attempts_at(agent, served, [{"task_id": "s", "text": "hello", "kind": "second"}], attempts=1)
    assert [(turn["role"], turn["sampled"], turn["call"]) for turn in rollout.turns] == [
        ("user", False, None),
        ("assistant", True, 0),
        ("user", False, None),
        ("assistant", True, 1),
    ]
    first, second = lines_of(agent)
    assert first["attempt_id"] == second["attempt_id"] and first["call_id"] != second["call_id"]
    assert second["request"]["messages"][:1] == first["request"]["messages"]
    assert second["request"]["sampling"]["stop"] == ["zzz"]
    assert rollout.num_sampled_tokens == len(first["token_ids"]) + len(second["token_ids"])


@pytest.mark.parametrize(
    ("task", "fault", "num_lines"),
    [
        ({"kind": "broken"}, "harness_error", 2),
        ({"kind": "silent"}, "harness_error", 1),
        ({"kind": "own timeout"}, "harness_error", 2),
        ({"max_tokens": 100_000}, "engine_error", 1),
        ({"kind": "endless"}, "timeout", 1),
    ],
)
def test_faults_have_a_name_and_no_result(
    agent: Workspace, served: tuple[str, Any], task: dict[str, Any], fault: str, num_lines: int
) -> None:
    if fault == "timeout":
        settings = (agent.folder / "nightshift.toml").read_text().replace("[policy]", "timeout_seconds = 0.05\n[policy]")
        (agent.folder / "nightshift.toml").write_text(settings)
        agent = Workspace.open(agent.folder)
    (rollout,) = attempts_at(agent, served, [{"task_id": "f", "text": "x", **task}], attempts=1)
    lines = lines_of(agent)
    assert rollout.fault == fault == lines[-1]["fault"] and lines[-1]["response"] is None
    assert len(lines) == num_lines and len({line["call_id"] for line in lines}) == num_lines
    assert harness.recorded(agent, agent.folder / "logs" / "calls.jsonl")[rollout.attempt_id].fault == fault


def test_a_call_that_is_cut_off_in_flight_is_a_timeout(agent: Workspace, served: tuple[str, Any]) -> None:
    settings = (agent.folder / "nightshift.toml").read_text().replace("[policy]", "timeout_seconds = 0.2\n[policy]")
    (agent.folder / "nightshift.toml").write_text(settings)
    with socket.create_server(("127.0.0.1", 0)) as mute:  # accepts and never answers
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/v1"
        (rollout,) = attempts_at(Workspace.open(agent.folder), (url, served[1]), TASKS[:1], attempts=1)
    assert rollout.fault == "timeout"
    (line,) = lines_of(agent)
    assert line["request"]["messages"] and line["response"] is None


def test_a_server_that_is_gone_ends_the_run_and_leaves_no_half_attempts(agent: Workspace, served: tuple[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    with pytest.raises(EngineError, match="does not answer"):
        attempts_at(agent, (url, served[1]), TASKS)
    assert lines_of(agent) == []
    assert len(attempts_at(agent, served, TASKS)) == 4


def test_a_harness_that_fails_at_every_attempt_is_told_and_tried_again(agent: Workspace, served: tuple[str, Any]) -> None:
    mended = (agent.folder / "harness.py").read_text()
    for code, told in (("raise ValueError('no\\nroute')", "ValueError: no route"), ("raise SystemExit(3)", "SystemExit: 3")):
        (agent.folder / "harness.py").write_text(f"async def rollout(task, client):\n    {code}\n")
        with pytest.raises(
            HarnessError, match=rf"failed at every attempt \(4 harness_error\); it raised {told}; mend that"
        ) as caught:
            attempts_at(agent, served, TASKS)
        assert "\n" not in str(caught.value) and lines_of(agent) == []
    (agent.folder / "harness.py").write_text(mended)
    assert [rollout.fault for rollout in attempts_at(agent, served, TASKS)] == [None] * 4
    # one that goes well is enough for the others to be faults of their own
    mixed = [{"task_id": "bad", "text": "x", "kind": "silent"}, {"task_id": "good", "text": "x"}]
    rollouts = attempts_at(agent, served, mixed, attempts=1)
    assert [rollout.fault for rollout in rollouts] == ["harness_error", None]
    assert {line["task_id"] for line in lines_of(agent)} >= {"bad", "good"}


def test_entries_that_are_no_harness_are_refused(agent: Workspace, tmp_path: Path) -> None:
    def refusal(entry: str, content: str = "") -> str:
        (agent.folder / "nightshift.toml").write_text(f'[harness]\nentry = "{entry}"\n')
        (agent.folder / "other.py").write_text(content)
        with pytest.raises(HarnessError) as caught:
            harness.load(Workspace.open(agent.folder))
        return str(caught.value)

    assert "is no Python file" in refusal("absent.py:rollout")
    assert "cannot be loaded: ZeroDivisionError" in refusal("other.py:rollout", "1/0")
    assert "no `async def rollout" in refusal("other.py:rollout", "def rollout(task, client): ...")
    assert "no harness: name one" in _no_entry(tmp_path)


def _no_entry(tmp_path: Path) -> str:
    with pytest.raises(HarnessError) as caught:
        harness.load(make_workspace(tmp_path / "bare"))
    return str(caught.value)


def test_task_files_are_read_whole_or_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task_id": 7, "text": "line\u2028separator"}\n\n{"task_id": "b"}\n')
    assert harness.read_tasks(path) == [{"task_id": "7", "text": "line\u2028separator"}, {"task_id": "b"}]
    path.write_text('{"task_id": "a"}\n{"text": "none"}\n')
    with pytest.raises(HarnessError, match=r"tasks\.jsonl:2 is no JSON object with a task_id"):
        harness.read_tasks(path)
    path.write_text('{"task_id": "a"}\n{"task_id": "a"}\n')
    with pytest.raises(HarnessError, match=r"tasks\.jsonl:2 has the task_id a"):
        harness.read_tasks(path)
    with pytest.raises(HarnessError, match="cannot be read"):
        harness.read_tasks(tmp_path / "absent.jsonl")


OUTCOMES = """
async def rollout(task, client):
    await client.chat([{"role": "user", "content": "x"}], max_tokens=3)
    return {"half": 0.5, "true": True, "text": "done", "beyond": 1.5}.get(task["task_id"])
"""


def test_an_outcome_that_the_harness_returns_is_recorded(agent: Workspace, served: tuple[str, Any]) -> None:
    (agent.folder / "harness.py").write_text(OUTCOMES)
    tasks = [{"task_id": task_id} for task_id in ("half", "true", "text", "none", "beyond")]
    rollouts = attempts_at(agent, served, tasks, attempts=1)
    assert [rollout.outcome for rollout in rollouts] == [0.5, 1.0, None, None, None]
    assert [rollout.fault for rollout in rollouts] == [None] * 4 + ["harness_error"]
    held = harness.recorded(agent, agent.folder / "logs" / "calls.jsonl")
    assert {rollout.task_id: rollout.outcome for rollout in held.values()} == {
        "half": 0.5,
        "true": 1.0,
        "text": None,
        "none": None,
        "beyond": None,
    }


def test_a_task_without_a_name_is_recorded_without_one_and_found_again(agent: Workspace, served: tuple[str, Any]) -> None:
    tasks = [{"task_id": None, "task_key": key, "text": key} for key in ("tsk_a", "tsk_b")]
    first = attempts_at(agent, served, tasks, attempts=[2, 1], temperature=0.5)
    assert [(rollout.task_id, rollout.task_key, rollout.attempt) for rollout in first] == [
        (None, None, 0),
        (None, None, 1),
        (None, None, 0),
    ]
    assert len({rollout.attempt_id for rollout in first}) == 3
    assert {(line["task_id"], line["request"]["sampling"]["temperature"]) for line in lines_of(agent)} == {(None, 0.5)}
    again = attempts_at(agent, ("http://127.0.0.1:9/v1", served[1]), tasks, attempts=[2, 1])
    assert [rollout.attempt_id for rollout in again] == [rollout.attempt_id for rollout in first]


def test_what_an_attempt_cost_is_every_calls_prompt_and_answer(agent: Workspace, served: tuple[str, Any]) -> None:
    (rollout,) = attempts_at(agent, served, [{"task_id": "s", "text": "hello", "kind": "second"}], attempts=1)
    lines = lines_of(agent)
    assert rollout.num_tokens == sum(len(line["prompt_token_ids"]) + len(line["token_ids"]) for line in lines)
    assert (rollout.began, rollout.ended) == (lines[0]["started_at"], lines[-1]["ended_at"])


def test_purposes_are_enumerated(agent: Workspace, served: tuple[str, Any]) -> None:
    with pytest.raises(HarnessError, match="purpose"):
        attempts_at(agent, served, TASKS, purpose="training")
