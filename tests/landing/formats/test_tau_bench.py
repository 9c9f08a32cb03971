"""tau-bench results."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from pipelines.landing import registry
from pipelines.landing.format import Attempt, BadRecord, SourceRecord
from pipelines.landing.tau_bench import TauBench
from tests.landing.lines import attempts, item

FORMAT = TauBench()
FILES = [json.dumps([item(1)]).encode(), json.dumps([item(1)], indent=2).encode(), json.dumps([item(1)]).encode()[:400]]
FOLDERS = {"tau_bench"}


def attempt_of(value: object) -> Attempt:
    (attempt,) = attempts(TauBench(), value)
    return attempt


def test_the_simulated_user_is_never_sampled() -> None:
    attempt = attempt_of(item(5, reward=0.5))
    assert [(turn["role"], turn["sampled"], turn["call"]) for turn in attempt.turns] == [
        ("system", False, None),
        ("user", False, None),
        ("assistant", True, 0),
        ("tool", False, None),
        ("assistant", True, 1),
        ("user", False, None),
    ]
    assert attempt.turns[2]["content"] is None
    assert attempt.turns[2]["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"order": 5}'}
    assert (attempt.turns[3]["tool_call_id"], attempt.turns[3]["name"]) == ("call_1", "look_up")
    assert len(attempt.calls) == 2 and not attempt.exact_tokens and attempt.num_sampled_tokens == 0
    assert (attempt.task_id, attempt.attempt, attempt.model, attempt.policy_version) == ("1", 1, None, None)
    assert (attempt.outcome, attempt.outcome_source, attempt.fault) == (0.5, "reward", None)


def test_an_errored_row_is_a_fault_and_no_failed_attempt() -> None:
    attempt = attempt_of(item(5, reward=0.0, traj=[], info={"error": "rate limit", "traceback": "…"}))
    assert (attempt.fault, attempt.outcome, attempt.turns, attempt.calls) == ("harness_error", None, [], [])


@pytest.mark.parametrize("changes", [{"reward": 2.0}, {"reward": None}, {"traj": "none"}, {"task_id": 1.5}])
def test_an_item_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps([{**item(1), **changes}]), encoding="utf-8")
    (bad,) = TauBench().split(path)
    assert isinstance(bad, BadRecord) and bad.reason == "wrong_shape"


def test_the_published_file_reads_as_its_authors_say(shared_logs: Path) -> None:
    path = shared_logs / "tau_bench" / "sierra_gpt-4o-airline.json"
    format = registry.detect(path)
    assert format is not None and format.name == "tau_bench"
    outcomes: dict[str | None, Counter[float | None]] = defaultdict(Counter)
    for piece in format.split(path):
        assert isinstance(piece, SourceRecord)
        (attempt,) = attempts(format, piece.value)
        outcomes[attempt.task_id][attempt.outcome] += 1
    passed = [found[1.0] for found in outcomes.values()]
    assert {found.total() for found in outcomes.values()} == {4}
    assert (len(passed), passed.count(4), passed.count(0)) == (50, 10, 14)
