"""NeMo Gym rollouts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipelines.groups import overview, reach, want
from pipelines.ingest import ingest
from pipelines.landing.format import Attempt, SourceRecord
from pipelines.landing.nemo_gym import NemoGym
from tests.conftest import make_workspace
from tests.landing.formats.whole_files import read, read_folder, refused, shape
from tests.landing.lines import attempts as attempts_of
from tests.landing.lines import line

CALL = {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"a": 1}', "id": "fc1"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "found"}
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "id": "rs1"}


def said(text: str, **changes: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content, "id": "m1", **changes}


def row(*output: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {
            "input": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}],
            "tools": [{"type": "function", "name": "look_up"}],
            "model": "small",
        },
        "response": {
            "id": "resp_1",
            "created_at": 1780000000.0,
            "model": "small-1",
            "output": list(output) or [THOUGHT, CALL, OUTPUT, said("It is found.")],
            "usage": {"input_tokens": 20, "output_tokens": 5},
        },
        "reward": 1.0,
        "_ng_task_index": 7,
        "_ng_rollout_index": 2,
        "agent_ref": {"name": "simple_agent"},
        **changes,
    }


FORMAT = NemoGym()
FILES = [line(row()) + line(row()), b"{torn\n" + line(row()), line(row())[:200]]
FOLDERS = {"nemo_gym_rollouts"}


def attempt_of(value: Any) -> Attempt:
    (attempt,) = attempts_of(FORMAT, value)
    return attempt


def test_the_models_items_are_sampled_and_the_environments_are_not() -> None:
    attempt = attempt_of(row())
    assert shape(attempt) == "suAtA"
    assert (attempt.turns[2]["reasoning"], attempt.turns[2]["content"]) == ("Hm.", None)
    assert attempt.turns[2]["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"a": 1}'}
    assert (attempt.turns[3]["tool_call_id"], attempt.turns[3]["content"]) == ("c1", "found")
    assert (attempt.task_id, attempt.attempt, attempt.harness, attempt.model) == ("7", 2, "simple_agent", "small-1")
    assert (attempt.outcome, attempt.outcome_source, attempt.fault) == (1.0, "reward", None)
    assert (attempt.num_prompt_tokens, attempt.num_reply_tokens) == (20, 5)
    assert attempt.tools and attempt.ended_at is not None


def test_simulated_users_and_earlier_answers_are_never_sampled() -> None:
    value = row(said("Hello."), {"type": "message", "role": "user", "content": "Order 5."}, said("On its way."))
    value["responses_create_params"]["input"] += [said("Earlier."), {**CALL}, {**OUTPUT}, {"role": "user", "content": "Go on."}]
    assert shape(attempt_of(value)) == "suatuAuA"


def test_what_is_one_answer() -> None:
    assert shape(attempt_of(row(said("One."), said("Two.")))) == "suAA"
    assert shape(attempt_of(row(said("Look."), CALL, {**CALL, "call_id": "c2"}, OUTPUT))) == "suAt"
    # some servers write an answer's reasoning behind its call
    assert shape(attempt_of(row(CALL, THOUGHT, OUTPUT, THOUGHT, said("Done.")))) == "suAtA"
    # a call whose output is missing, an output whose call is missing
    orphans = attempt_of(row(CALL, said("Next."), {**OUTPUT, "call_id": "other"}))
    assert shape(orphans) == "suAAt" and orphans.turns[-1]["tool_call_id"] == "other"


def test_token_ids_belong_to_their_answer_and_empty_ones_are_none() -> None:
    ids = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.5, -0.25]}
    attempt = attempt_of(row({**CALL, **ids}, OUTPUT, said("Done.", **ids)))
    assert attempt.exact_tokens and attempt.num_sampled_tokens == 4
    empty = {"prompt_token_ids": [], "generation_token_ids": [], "generation_log_probs": []}
    (call,) = attempt_of(row(said("Done.", **empty))).calls
    assert (call["prompt_token_ids"], call["token_ids"], call["logprobs"]) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"error_kind": "sandbox_died"}, "harness_error"),
        ({"error_kind": "agent_timeout"}, "timeout"),
        ({"agent_timed_out": True}, "timeout"),
        ({"eval_timed_out": True}, "evaluation_failed"),
        ({"evaluation_completed": False}, "evaluation_failed"),
        ({"error_kind": None, "agent_timed_out": False, "agent_error_kind": "other"}, None),
    ],
)
def test_faults_are_no_failed_attempts(changes: dict[str, Any], fault: str | None) -> None:
    attempt = attempt_of(row(reward=0.0, **changes))
    assert (attempt.fault, attempt.outcome) == (fault, None if fault else 0.0)


def test_a_masked_row_is_skipped_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(line(row(mask_sample=True)) + line(row(mask_sample=False)))
    first, second = FORMAT.split(path)
    assert isinstance(first, SourceRecord) and isinstance(second, SourceRecord)
    assert (first.skip_reason, second.skip_reason) == ("masked", None)


def test_how_a_task_is_named() -> None:
    by_index = attempt_of(row())
    assert by_index.snapshot is not None  # an index into a data set does not say what was asked
    value = row(instance_id="a__b-1")
    assert (attempt_of(value).task_id, attempt_of(value).snapshot) == ("a__b-1", None)
    unnamed = {name: kept for name, kept in row().items() if not name.startswith("_ng")}
    assert (attempt_of(unnamed).task_id, attempt_of(unnamed).attempt) == (None, None)


def test_requests_without_an_input() -> None:
    value = row(said("Done."))
    value["responses_create_params"] = {"input": [], "metadata": {"problem_statement": "Mend it.", "instance_id": "a__b-1"}}
    assert [turn["content"] for turn in attempt_of(value).turns] == ["Mend it.", "Done."]
    value["responses_create_params"] = {"input": "Q", "instructions": "S"}
    assert [(turn["role"], turn["content"]) for turn in attempt_of(value).turns][:2] == [("system", "S"), ("user", "Q")]


def test_nobody_counted_where_usage_is_zero() -> None:
    value = row()
    value["response"]["usage"] = {"input_tokens": 0, "output_tokens": 0}
    assert attempt_of(value).num_prompt_tokens is None
    value["response"]["usage"] = None
    value["response"]["model"] = ""
    value["responses_create_params"]["model"] = ""
    assert (attempt_of(value).num_reply_tokens, attempt_of(value).model) == (None, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"reward": "good"},
        {"response": []},
        {"response": {"output": {}}},
        {"response": {"output": [{"type": "message", "role": 5}]}},
        {"responses_create_params": None},
    ],
)
def test_a_row_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert refused(FORMAT, tmp_path / "x.jsonl", line(row(**changes))).reason == "wrong_shape"


def test_real_files(shared_logs: Path) -> None:
    found = read_folder(FORMAT, shared_logs / "nemo_gym_rollouts")
    by_file = {name.split("__example")[0]: attempts for name, attempts in found.items()}
    assert {len(attempts) for attempts in found.values()} == {5}
    for harness, passed in (("pi", 4), ("openclaw", 0)):
        (attempts,) = [kept for name, kept in found.items() if name.endswith(f"{harness}.jsonl")]
        assert len({attempt.task_id for attempt in attempts}) == 1
        assert sum(attempt.outcome == 1 for attempt in attempts) == passed
    assert Counter(attempt.outcome for attempt in by_file["blackjack"]) == {-1.0: 2, 1.0: 3}
    assert len({attempt.snapshot for attempt in by_file["blackjack"]}) == 5
    for name in ("calendar", "workplace_assistant", "swebench"):
        asked = {
            attempt.task_id or json.dumps([turn["content"] for turn in attempt.turns if not turn["sampled"]])
            for attempt in by_file[name]
        }
        assert len(asked) == 5
    assert not any(attempt.exact_tokens for attempts in found.values() for attempt in attempts)


@pytest.mark.parametrize("context", ["strict", "task_id"])
def test_blackjack_is_five_contexts_of_one_task(shared_logs: Path, tmp_path: Path, context: str) -> None:
    (path,) = (shared_logs / "nemo_gym_rollouts").glob("blackjack*")
    config = f'[groups]\ncontext = "{context}"\n\n[[sources]]\npath = "{path}"\noutcome_range = [-1.0, 1.0]\n'
    workspace = make_workspace(tmp_path / "workspace", config)
    ingest(workspace, None)
    found = overview(workspace)
    if context == "strict":
        assert found.groups == 0
        assert reach(workspace) == {"grouped": 0, "context_mismatch": 5}
        assert want(workspace, "2026-06-24").reasons == {"other_policy": 1}  # none of them is our own
    else:
        assert (found.groups, found.groups_mixed) == (1, 1)


def test_files_of_one_folder_reconcile(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(line(row()) + line(row(reward=0)) + line(row(mask_sample=True)))
    attempts, left = read(FORMAT, path)
    assert len(attempts) == 2 and left == {}
