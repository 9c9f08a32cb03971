from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import ConfigError, VerifierError
from pipelines.rewards.verifiers import Verdict, Verifier, combined, load
from pipelines.workspace import Workspace
from tests.conftest import make_workspace

CONFIG = """
[[rewards.verifiers]]
name = "desk"
kind = "python"
entry = "verifier.py:verify"
"""


def with_code(folder: Path, code: str, config: str = CONFIG) -> Workspace:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verifier.py").write_text(code, encoding="utf-8")
    return make_workspace(folder, config)


def answering(folder: Path, expression: str) -> Verifier:
    return load(with_code(folder, f"def verify(task_id, turns):\n    return {expression}\n"))[0]


def test_the_entry_is_called_with_task_and_turns(tmp_path: Path) -> None:
    verifier = answering(tmp_path, "0.25 if (task_id, turns[0]['content']) == ('7', 'hi') else 0.0")
    assert verifier.verdict("7", [{"content": "hi"}], None) == Verdict(250_000, None)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("turns[99]", "IndexError"),
        ("'0.8'", "no float"),
        ("True", "no float"),
        ("[1.0]", "no float"),
        ("float('nan')", "outside"),
        ("float('inf')", "outside"),
        ("1.5", "outside"),
        ("-0.001", "outside"),
    ],
)
def test_a_verifier_that_breaks_has_a_reason_and_no_score(tmp_path: Path, expression: str, said: str) -> None:
    verdict = answering(tmp_path, expression).verdict("7", [], None)
    assert verdict.score is None
    assert verdict.failed
    assert said in (verdict.reason or "")
    assert "\n" not in (verdict.reason or "")


def test_none_means_that_it_cannot_tell_which_is_no_failure(tmp_path: Path) -> None:
    verdict = answering(tmp_path, "None").verdict("7", [], None)
    assert (verdict.score, verdict.failed) == (None, False)


@pytest.mark.parametrize(("answer", "score"), [("1", 1_000_000), ("0.0", 0), ("0.3333333", 333_333)])
def test_scores_are_millionths(tmp_path: Path, answer: str, score: int) -> None:
    assert answering(tmp_path, answer).verdict(None, [], None) == Verdict(score, None)


def test_the_hash_follows_the_file_and_the_new_code_is_what_runs(tmp_path: Path) -> None:
    """Also within one second, in which a cached .pyc would not be noticed as old."""
    before = answering(tmp_path, "0.0")
    after = answering(tmp_path, "1.0")
    assert before.verifier_hash != after.verifier_hash
    assert after.verdict(None, [], None).score == 1_000_000
    assert answering(tmp_path, "0.0").verifier_hash == before.verifier_hash


def test_its_own_imports_lie_beside_it(tmp_path: Path) -> None:
    (tmp_path / "desk_answers.py").write_text("RIGHT = 0.5\n")
    workspace = with_code(tmp_path, "from desk_answers import RIGHT\ndef verify(task_id, turns):\n    return RIGHT\n")
    assert load(workspace)[0].verdict(None, [], None).score == 500_000


@pytest.mark.parametrize(
    ("code", "config", "error", "said"),
    [
        ("import not_there_at_all\n", CONFIG, VerifierError, "not_there_at_all"),
        ("def verify(:\n", CONFIG, VerifierError, "SyntaxError"),
        ("verify = 3\n", CONFIG, VerifierError, "no function verify"),
        ("", CONFIG.replace("verifier.py:verify", "verifier.py"), ConfigError, "file.py:function"),
        ("", CONFIG.replace("verifier.py:verify", "gone.py:verify"), VerifierError, "cannot be read"),
        ("", CONFIG + CONFIG, ConfigError, "a name of its own"),
    ],
)
def test_a_verifier_that_cannot_be_loaded_stops_the_stage(
    tmp_path: Path, code: str, config: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        load(with_code(tmp_path, code, config))


def test_the_logged_outcome_is_the_default(workspace: Workspace) -> None:
    (verifier,) = load(workspace)
    assert verifier.verdict(None, [], 700_000) == Verdict(700_000, None)
    assert verifier.verdict(None, [], None) == Verdict(None, "no_outcome")


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([Verdict(5, None), Verdict(3, None)], 3),
        ([Verdict(5, None), Verdict(None, "no_outcome")], 5),
        ([Verdict(5, None), Verdict(None, "failed: x")], "failed: x"),
        ([Verdict(None, "no_outcome")], "no_outcome"),
        ([], "cannot_tell"),
    ],
)
def test_the_minimum_counts_and_a_failure_outweighs_it(verdicts: list[Verdict], expected: Any) -> None:
    found = combined(verdicts)
    assert (found.score if found.reason is None else found.reason) == expected
