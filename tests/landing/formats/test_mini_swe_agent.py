"""mini-swe-agent trajectories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.format import Attempt
from pipelines.landing.mini_swe_agent import MiniSweAgent
from tests.landing.formats.whole_files import read, read_folder, refused, shape

BARE = [
    {"role": "system", "content": "One bash block per answer."},
    {"role": "user", "content": "Mend it."},
    {"role": "assistant", "content": "Look.\n\n```bash\nls\n```"},
    {"role": "user", "content": "<returncode>0</returncode>"},
    {"role": "assistant", "content": "```bash\necho COMPLETE\n```"},
]


def run(status: str | None = "Submitted", **changes: Any) -> dict[str, Any]:
    """A file of version 2, with calls and the provider's responses."""
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    response = {
        "id": "chatcmpl-1",
        "model": "glm-5",
        "choices": [
            {
                "finish_reason": "tool_calls",
                "token_ids": [5, 6],
                "logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]},
            }
        ],
        "prompt_token_ids": [1, 2, 3],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    return {
        "info": {
            "exit_status": status,
            "submission": "diff",
            "model_stats": {"instance_cost": 0.1, "api_calls": 1},
            "mini_version": "2",
        },
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "Q"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call],
                "reasoning_content": "Hm.",
                "extra": {"response": response, "timestamp": 1780000000.5, "cost": 0.1},
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a.py", "extra": {"timestamp": 1780000001.5}},
            {"role": "exit", "content": "diff", "extra": {"exit_status": status}},
        ],
        "trajectory_format": "mini-swe-agent-1.1",
        **changes,
    }


FORMAT = MiniSweAgent()
FILES = [json.dumps(BARE, indent=2).encode(), json.dumps(run()).encode(), json.dumps(run()).encode()[:350]]
FOLDERS = {"mini_swe_agent"}


def attempt_of(tmp_path: Path, value: Any, name: str = "last.traj.json") -> Attempt:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    (attempt,), left = read(FORMAT, path)
    assert left == {}
    return attempt


def test_a_run_that_was_read_while_it_went_on_is_one_attempt(tmp_path: Path) -> None:
    paths = []
    for name, value in (("a", BARE[:3]), ("b", BARE), ("c", [*BARE[:2], {"role": "assistant", "content": "```bash\npwd\n```"}])):
        paths.append(tmp_path / f"{name}.traj.json")
        paths[-1].write_text(json.dumps(value), encoding="utf-8")
    attempts, left = read(FORMAT, *paths)
    assert sorted(shape(attempt) for attempt in attempts) == ["suA", "suAuA"]
    assert [kind for _, kind in left.values()] == ["superseded"]
    going_on = run(None, messages=run()["messages"][:3])
    for name, value in (("a", going_on), ("b", run())):
        (tmp_path / f"{name}.traj.json").write_text(json.dumps(value), encoding="utf-8")
    (attempt,), left = read(FORMAT, *paths[:2])
    assert (attempt.fault, [kind for _, kind in left.values()]) == (None, ["superseded"])


def test_a_bare_list_of_messages(tmp_path: Path) -> None:
    attempt = attempt_of(tmp_path, BARE)
    assert shape(attempt) == "suAuA"
    assert (attempt.task_id, attempt.model, attempt.outcome, attempt.fault, attempt.ended_at) == (None, None, None, None, None)


def test_a_file_with_info_has_model_usage_times_and_the_samplers_tokens(tmp_path: Path) -> None:
    attempt = attempt_of(tmp_path, run())
    assert shape(attempt) == "suAt"  # the harness's note on the exit is no turn
    assert attempt.turns[2]["reasoning"] == "Hm."
    assert attempt.calls == [
        {
            "call_id": "chatcmpl-1",
            "prompt_token_ids": [1, 2, 3],
            "token_ids": [5, 6],
            "logprobs": [-0.5, -0.25],
            "finish_reason": "tool_calls",
        }
    ]
    assert attempt.exact_tokens
    assert (attempt.model, attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd) == ("glm-5", 3, 2, 0.1)
    assert attempt.ended_at is not None and attempt.ended_at.timestamp() == 1780000001.5
    assert (attempt.outcome, attempt.fault) == (None, None)


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        ("LimitsExceeded", None),
        ("RepeatedFormatError", None),
        ("", "aborted"),
        (None, "aborted"),
        ("UserInterruption", "aborted"),
        ("RateLimitError", "model_error"),
        ("Timeout", "model_error"),
        ("APIConnectionError", "model_error"),
        ("CalledProcessError", "harness_error"),
    ],
)
def test_which_ends_are_faults(tmp_path: Path, status: str | None, fault: str | None) -> None:
    assert attempt_of(tmp_path, run(status)).fault == fault


def test_the_instance_is_named_by_the_file_or_by_its_folder(tmp_path: Path) -> None:
    assert attempt_of(tmp_path, run(instance_id="a__b-1")).task_id == "a__b-1"
    assert attempt_of(tmp_path, run(), "a__b-2/a__b-2.traj.json").task_id == "a__b-2"
    assert attempt_of(tmp_path, run()).task_id is None


def test_answers_of_the_responses_api(tmp_path: Path) -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Look."}]},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command":"ls"}'},
    ]
    messages = [
        {"role": "user", "content": "Q"},
        {
            "object": "response",
            "output": output,
            "extra": {"response": {"id": "r1", "usage": {"input_tokens": 4, "output_tokens": 3}}},
        },
        {"type": "function_call_output", "call_id": "c1", "output": "a.py", "extra": {}},
    ]
    attempt = attempt_of(tmp_path, run(messages=messages))
    assert shape(attempt) == "uAt"
    turn = attempt.turns[1]
    assert (turn["content"], turn["reasoning"], turn["tool_calls"][0]["id"]) == ("Look.", "Hm.", "c1")
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens) == (4, 3)


@pytest.mark.parametrize(
    "value", [run(messages={}), run(messages=["x"]), run(messages=[{"role": 5}]), [{"role": "user", "content": 5}]]
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, value: Any) -> None:
    assert refused(FORMAT, tmp_path / "x.json", value).reason == "wrong_shape"


def test_real_files(shared_logs: Path) -> None:
    found = read_folder(FORMAT, shared_logs / "mini_swe_agent")
    assert len(found) == 3
    assert all([shape(attempt) for attempt in attempts] == ["su" + "Au" * 10] for attempts in found.values())
