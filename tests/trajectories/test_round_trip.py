"""A trajectory that is read, written as a log again and read once more is the same in meaning: tools, the history before each
answer, reasoning, versions, usage, faults and the calls' tokens survive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.landing.land import land
from pipelines.schemas import TRAJECTORIES
from pipelines.trajectories import build
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.deliver import call
from tests.landing.lines import write_lines

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
MEANING = set(TRAJECTORIES.schema.names) - {"record_ids"}


def conversation(attempt: str, **last: Any) -> list[dict[str, Any]]:
    """Three calls with a tool between, reasoning that is not sent back, and another policy version than the others."""
    wants = {"id": "t1", "type": "function", "function": {"name": "look_up", "arguments": {"order": 5}}}
    asked = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Where is it?"}]
    first = {"role": "assistant", "content": None, "tool_calls": [wants], "reasoning_content": "I should look."}
    found = {"role": "tool", "tool_call_id": "t1", "content": "on its way"}
    second = {"role": "assistant", "content": "On its way.", "reasoning_content": "Tell them."}
    without = [{name: value for name, value in message.items() if name != "reasoning_content"} for message in (first, second)]
    prompts = [asked, [*asked, without[0], found], [*asked, without[0], found, without[1], {"role": "user", "content": "Thanks"}]]
    answers = [first, second, {"role": "assistant", "content": "Bye"}]
    lines = [
        call(
            attempt,
            number=number,
            policy_version="nightshift-agent@3",
            request={"messages": prompt, "tools": TOOLS},
            response={"message": answer, "finish_reason": "stop"},
            token_ids=[number, 9],
            usage={"prompt_tokens": 10 + number, "completion_tokens": 2},
        )
        for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]
    return [*lines[:-1], {**lines[-1], **last}]


def written_again(row: dict[str, Any], original: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row of trajectories as recorder lines; `original` gives what the row does not hold per call: times and usage."""
    turns, calls = json.loads(row["turns"]), json.loads(row["calls"])
    ends = {turn["call"]: place for place, turn in enumerate(turns) if turn["sampled"]}
    tools = None if row["tools"] is None else json.loads(row["tools"])
    lines = []
    for number, told in enumerate(original):
        place = ends.get(number, len(turns))
        entry = calls[number] if number < len(calls) else {}
        response = {"message": turns[place], "finish_reason": entry["finish_reason"]} if number in ends else None
        same = {name: told[name] for name in ("recorder", "kind", "call_id", "attempt_id", "started_at", "ended_at", "usage")}
        lines.append(
            {
                **same,
                **{name: row[name] for name in ("harness", "task_id", "attempt", "purpose", "policy_version", "model")},
                "request": {"messages": turns[:place], "tools": tools},
                "response": response,
                **{name: entry.get(name) for name in ("prompt_token_ids", "token_ids", "logprobs")},
                "outcome": row["outcome_logged"] if number == len(original) - 1 else None,
                "fault": row["fault"] if number == len(original) - 1 else None,
            }
        )
    return lines


def rows(workspace: Workspace, lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    land(workspace, [write_lines(workspace.folder / "logs" / "calls.jsonl", lines)])
    build(workspace)
    return {row["trajectory_id"]: row for row in workspace.lake.read(TRAJECTORIES.name).to_pylist()}


def test_what_is_read_written_and_read_again_means_the_same(tmp_path: Path) -> None:
    attempts = {
        "passed": conversation("passed", outcome=1.0),
        "broken": conversation("broken", response=None, fault="timeout", token_ids=None, logprobs=None, prompt_token_ids=None),
    }
    once = rows(make_workspace(tmp_path / "once"), [line for lines in attempts.values() for line in lines])
    assert {row["fault"] for row in once.values()} == {None, "timeout"} and len(once) == 2
    by_name = {("broken" if row["fault"] else "passed"): row for row in once.values()}
    again = [line for name, lines in attempts.items() for line in written_again(by_name[name], lines)]
    twice = rows(make_workspace(tmp_path / "twice"), again)
    assert twice.keys() == once.keys()
    for trajectory_id, row in once.items():
        different = {name for name in MEANING if row[name] != twice[trajectory_id][name]}
        assert different == set(), different
        assert json.loads(row["turns"])[2]["reasoning"] == "I should look." and row["tools"] is not None
        assert row["policy_version"] == "nightshift-agent@3"
