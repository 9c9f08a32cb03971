"""ATIF documents and Harbor's results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.landing.atif import Atif
from pipelines.landing.format import Attempt
from tests.landing.formats.whole_files import read, read_folder, refused, shape, split
from tests.landing.lines import line


def document(*steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    call = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "ls"}}
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "session-1",
        "agent": {
            "name": "terminus-2",
            "version": "1",
            "model_name": "small",
            "tool_definitions": [{"type": "function", "function": {"name": "bash"}}],
        },
        "steps": list(steps)
        or [
            {"step_id": 1, "source": "system", "message": "S"},
            {"step_id": 2, "source": "user", "message": "Q", "timestamp": "2026-01-15T10:00:00Z"},
            {
                "step_id": 3,
                "source": "agent",
                "timestamp": "2026-01-15T10:00:05Z",
                "message": "Look.",
                "reasoning_content": "Hm.",
                "tool_calls": [call],
                "observation": {"results": [{"source_call_id": "c1", "content": "a.py"}]},
                "metrics": {
                    "prompt_tokens": 3,
                    "completion_tokens": 2,
                    "cost_usd": 0.5,
                    "prompt_token_ids": [1, 2, 3],
                    "completion_token_ids": [4, 5],
                    "logprobs": [-0.5, -0.25],
                },
            },
        ],
        "final_metrics": {"total_prompt_tokens": 99},
        **changes,
    }


def result(reward: Any = 1.0, **changes: Any) -> dict[str, Any]:
    return {
        "id": "r1",
        "task_name": "hello-world",
        "trial_name": "hello-world__abc",
        "verifier_result": {"rewards": {"reward": reward}},
        "exception_info": None,
        "started_at": "2026-01-15T09:59:00Z",
        "finished_at": "2026-01-15T10:01:00Z",
        **changes,
    }


FORMAT = Atif()
FILES = [
    json.dumps(document(), indent=2).encode(),
    line(document()) + line(document(session_id="session-2")),
    json.dumps(document()).encode()[:150],
    json.dumps(result(), indent=2).encode(),
]
FOLDERS = {"atif"}


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
    return path


def attempts_of(tmp_path: Path, *documents: dict[str, Any]) -> list[Attempt]:
    return read(FORMAT, *[write(tmp_path / f"{number}.json", value) for number, value in enumerate(documents)])[0]


def test_an_agents_steps_are_sampled_with_their_tokens(tmp_path: Path) -> None:
    (attempt,) = attempts_of(tmp_path, document())
    assert shape(attempt) == "suAt"
    assert attempt.turns[2]["reasoning"] == "Hm."
    assert attempt.turns[2]["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"cmd":"ls"}'}
    assert (attempt.turns[3]["tool_call_id"], attempt.turns[3]["content"]) == ("c1", "a.py")
    assert attempt.exact_tokens and attempt.num_sampled_tokens == 2
    assert (attempt.harness, attempt.model, attempt.tools is not None) == ("terminus-2", "small", True)
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens, attempt.cost_usd) == (3, 2, 0.5)
    assert (attempt.task_id, attempt.outcome, attempt.fault, attempt.link) == (None, None, None, None)
    assert attempt.ended_at is not None and attempt.ended_at.isoformat() == "2026-01-15T10:00:05+00:00"


def test_agents_that_write_their_calls_as_text(tmp_path: Path) -> None:
    step = {"step_id": 1, "source": "agent", "message": "<cmd>ls</cmd>", "observation": {"results": [{"content": "a.py"}]}}
    (attempt,) = attempts_of(tmp_path, document(step, final_metrics={"total_prompt_tokens": 7, "total_completion_tokens": 3}))
    assert shape(attempt) == "Au"
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens) == (7, 3)


def test_empty_token_ids_are_none_and_steps_without_a_model_are_not_sampled(tmp_path: Path) -> None:
    steps = [
        {"source": "agent", "message": "A", "metrics": {"prompt_token_ids": [], "completion_token_ids": [], "logprobs": []}},
        {"source": "agent", "message": "Made by the harness.", "llm_call_count": 0},
    ]
    (attempt,) = attempts_of(tmp_path, document(*steps))
    assert shape(attempt) == "Aa"
    assert attempt.calls[0]["token_ids"] is None and attempt.calls[0]["logprobs"] is None


def test_parts_of_a_message(tmp_path: Path) -> None:
    text, image = {"type": "text", "text": "See."}, {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}
    steps = [{"source": "user", "message": [text]}, {"source": "user", "message": [text, image]}]
    (attempt,) = attempts_of(tmp_path, document(*steps))
    assert [turn["content"] for turn in attempt.turns] == ["See.", [text, image]]


def test_a_continuation_is_linked_and_its_copied_steps_are_not_sampled(tmp_path: Path) -> None:
    first = document(continued_trajectory_ref="trajectory.cont-1.json")
    copied = [{**step, "is_copied_context": True} for step in document()["steps"]]
    second = document(*copied, {"source": "agent", "message": "Done."}, session_id="session-1-cont-1")
    paths = [write(tmp_path / "trajectory.json", first), write(tmp_path / "trajectory.cont-1.json", second)]
    attempts, left = read(FORMAT, *paths)
    assert left == {}
    before, after = sorted(attempts, key=lambda attempt: len(attempt.turns))
    assert (shape(before), shape(after)) == ("suAt", "suatA")
    assert (after.parent_ref, after.link, after.num_shared_turns) == (before.ref, "continuation", 4)
    assert (before.parent_ref, before.link) == (None, None)


def test_subagents_embedded_in_their_parent(tmp_path: Path) -> None:
    spawn = {
        "source": "agent",
        "message": "",
        "tool_calls": [{"tool_call_id": "c9", "function_name": "task", "arguments": {}}],
        "observation": {"results": [{"source_call_id": "c9", "subagent_trajectory_ref": [{"trajectory_id": "sub-1"}]}]},
    }
    sub = document({"source": "user", "message": "Search."}, {"source": "agent", "message": "Found."}, trajectory_id="sub-1")
    whole = document(spawn, schema_version="ATIF-v1.7", trajectory_id="main", subagent_trajectories=[sub])
    main, inner = sorted(attempts_of(tmp_path, whole), key=lambda attempt: attempt.ref)
    assert (shape(main), shape(inner)) == ("At", "uA")
    assert (inner.parent_ref, inner.link, inner.parent_tool_call_id) == (main.ref, "subagent", "c9")
    assert inner.turns[1]["content"] == "Found." and "id" in inner.turns[1]


def test_subagents_in_files_of_their_own(tmp_path: Path) -> None:
    reference = [{"session_id": "session-1-summarization-1", "trajectory_path": "trajectory.summarization-1.json"}]
    step = {"source": "system", "message": "Summarised.", "observation": {"results": [{"subagent_trajectory_ref": reference}]}}
    main = document(step, {"source": "agent", "message": "On."})
    sub = document(
        {"source": "user", "message": "Sum up."}, {"source": "agent", "message": "Short."}, session_id="session-1-summarization-1"
    )
    attempts, _ = read(
        FORMAT, write(tmp_path / "trajectory.json", main), write(tmp_path / "trajectory.summarization-1.json", sub)
    )
    linked = {attempt.link: attempt for attempt in attempts}
    assert linked["subagent"].parent_ref == linked[None].ref and linked["subagent"].parent_tool_call_id is None
    assert shape(linked[None]) == "sA"  # the model was shown nothing of it


def trial(tmp_path: Path, *documents: dict[str, Any], verdict: dict[str, Any] | None = None) -> tuple[list[Attempt], Any]:
    folder = tmp_path / "hello-world__abc"
    names = ["trajectory.json", "trajectory.cont-1.json"]
    paths = [write(folder / "agent" / name, value) for name, value in zip(names, documents, strict=False)]
    return read(FORMAT, *paths, write(folder / "result.json", result() if verdict is None else verdict))


def test_a_trials_result_is_read_with_its_trajectory(tmp_path: Path) -> None:
    (attempt,), left = trial(tmp_path, document())
    assert left == {} and len(attempt.record_ids) == 2
    assert (attempt.task_id, attempt.outcome, attempt.outcome_source) == ("hello-world", 1.0, "verifier_result.rewards.reward")


def test_the_result_belongs_to_the_end_of_the_attempt(tmp_path: Path) -> None:
    attempts, _ = trial(
        tmp_path,
        document(continued_trajectory_ref="trajectory.cont-1.json"),
        document({"source": "agent", "message": "Done."}, session_id="session-1-cont-1"),
    )
    assert {attempt.link: attempt.outcome for attempt in attempts} == {None: None, "continuation": 1.0}
    assert {attempt.task_id for attempt in attempts} == {"hello-world"}


def test_a_result_of_one_of_several_attempts_is_nobodys(tmp_path: Path) -> None:
    attempts, left = trial(tmp_path, document(), document({"source": "agent", "message": "Other."}, session_id="other"))
    assert [attempt.outcome for attempt in attempts] == [None, None]
    assert list(left.values()) == [(None, "unmatched")]
    attempts, left = trial(tmp_path / "alone")
    assert attempts == [] and list(left.values()) == [(None, "unmatched")]


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("AgentTimeoutError", None),
        ("VerifierTimeoutError", "evaluation_failed"),
        ("RewardFileNotFoundError", "evaluation_failed"),
        ("EnvironmentStartTimeoutError", "timeout"),
        ("CancelledError", "aborted"),
        ("NonZeroAgentExitCodeError", "harness_error"),
    ],
)
def test_which_exceptions_are_faults(tmp_path: Path, kind: str, fault: str | None) -> None:
    (attempt,), _ = trial(tmp_path, document(), verdict=result(0.0, exception_info={"exception_type": kind}))
    assert (attempt.fault, attempt.outcome) == (fault, None if fault else 0.0)


@pytest.mark.parametrize(
    ("rewards", "outcome"), [({"score": 0.5}, 0.5), ({"a": 1, "b": 0}, None), ({"a": 1, "reward": 0}, 0.0), (None, None)]
)
def test_which_reward_is_the_outcome(tmp_path: Path, rewards: Any, outcome: float | None) -> None:
    (attempt,), _ = trial(tmp_path, document(), verdict=result(verifier_result={"rewards": rewards}))
    assert attempt.outcome == outcome


def test_tokens_of_a_result_belong_to_the_calls_where_they_are_as_many(tmp_path: Path) -> None:
    bare = document({"source": "agent", "message": "A"}, {"source": "user", "message": "Q"}, {"source": "agent", "message": "B"})
    details = {"prompt_token_ids": [[1], [1, 2]], "completion_token_ids": [[5], [6, 7]], "logprobs": [[-0.5], [-0.5, -0.25]]}
    (attempt,), _ = trial(tmp_path, bare, verdict=result(agent_result={"rollout_details": [details]}))
    assert attempt.exact_tokens and [call["token_ids"] for call in attempt.calls] == [[5], [6, 7]]
    shorter = {**details, "completion_token_ids": [[5]]}
    (attempt,), _ = trial(tmp_path, bare, verdict=result(agent_result={"rollout_details": [shorter]}))
    assert [call["token_ids"] for call in attempt.calls] == [None, None]


def test_an_earlier_state_of_a_document_is_superseded(tmp_path: Path) -> None:
    grown = document(*document()["steps"], {"source": "agent", "message": "More."})
    attempts, left = read(FORMAT, write(tmp_path / "a" / "t.json", document()), write(tmp_path / "b" / "t.json", grown))
    assert [shape(attempt) for attempt in attempts] == ["suAtA"]
    assert list(left.values()) == [(attempts[0].ref, "superseded")]


def test_documents_by_agentpile_say_task_and_outcome(tmp_path: Path) -> None:
    extra = {"agentpile": {"task": {"id": "travel-1"}, "outcome": {"success": False, "score": 0.0}}}
    (attempt,) = attempts_of(tmp_path, document(extra=extra))
    assert (attempt.task_id, attempt.outcome, attempt.outcome_source) == ("travel-1", 0.0, "extra.agentpile.outcome.score")


def test_one_document_a_line(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_bytes(line(document()) + line(document(session_id="session-2")))
    assert [(record.line, record.bundle_ref) for record in split(FORMAT, path)] == [(1, "session-1"), (2, "session-2")]


@pytest.mark.parametrize(
    "changes",
    [{"steps": None}, {"steps": ["x"]}, {"steps": [{"message": "no source"}]}, {"steps": [{"source": "user", "message": 5}]}],
)
def test_a_document_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert refused(FORMAT, tmp_path / "x.json", document(**changes)).reason == "wrong_shape"


def test_real_files(shared_logs: Path) -> None:
    found = read_folder(FORMAT, shared_logs / "atif", refuses=("nemo_relay_atof",))
    assert {name: [shape(attempt) for attempt in attempts] for name, attempts in found.items()} == {
        "atif_multiagent.json": ["suAttAtA"],
        "atif_two.jsonl": ["suAttAtA"] * 2,
        "openhands_hello-world.trajectory.no_function_calling.json": ["suAuA"],
    }
