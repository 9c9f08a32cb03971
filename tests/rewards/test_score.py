from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.doors.judge import Answer, Ask
from pipelines.errors import JudgeUnavailableError
from pipelines.rewards.score import score
from pipelines.schemas import JUDGEMENTS, REWARDS, TRAJECTORIES, VERDICTS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.judge_double import Reply, score_by
from tests.sealed import Logged, seal_groups

NIGHT = "2026-11-20"
JUDGED = """
[judge]
model = "openai/judge-1"
"""
FAILED = [Logged("poor", 0.0), Logged("bad", 0.0), Logged("worse", 0.0), Logged("worst", 0.0)]
MIXED = [Logged("good", 1.0), Logged("bad", 0.0), Logged("fine", 1.0)]


@contextmanager
def asking(reply: Reply, asked: list[Any]) -> Iterator[Ask]:
    """The judge double without its HTTP server: what these tests are about begins behind the door."""

    def ask(messages: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> Answer:
        asked.append(list(messages))
        status, text = reply({"messages": messages})
        if status != 200:
            raise JudgeUnavailableError(f"judge did not answer: {text}")
        return Answer(text, cut=False, num_prompt_tokens=11, num_reply_tokens=7, cost_usd=0.5, seconds=0.0)

    yield ask


def rewards(workspace: Workspace) -> dict[str, dict[str, Any]]:
    return {row["trajectory_id"]: row for row in workspace.lake.read(REWARDS.name).to_pylist()}


def test_logged_outcomes_become_rewards_once(workspace: Workspace) -> None:
    ids = seal_groups(workspace, {"mixed": MIXED, "pass": [Logged("a", 1.0)] * 2, "fail": [Logged("a", 0.0), Logged("b", 0.5)]})
    report = score(workspace, NIGHT, door=nobody())
    assert (report.groups, report.groups_mixed, report.groups_all_pass, report.groups_all_fail) == (3, 1, 1, 1)
    assert (report.verdicts, report.verifier_failures, report.reasons) == (7, 0, {})
    assert report.mean_reward == pytest.approx(4.5 / 7)
    assert report.pass_rate == pytest.approx(4 / 7)
    rows = rewards(workspace)
    assert [rows[i]["reward"] for i in ids["mixed"]] == [1_000_000, 0, 1_000_000]
    assert [rows[i]["passed"] for i in ids["fail"]] == [False, False]
    before = canonical(workspace)
    again = score(workspace, "2026-11-21", door=nobody())
    assert (again.groups, again.verdicts) == (0, 0)
    assert again.why_nothing
    assert canonical(workspace) == before


def canonical(workspace: Workspace) -> list[list[dict[str, Any]]]:
    return [
        sorted(workspace.lake.read(table).to_pylist(), key=lambda row: json.dumps(row, sort_keys=True))
        for table in (VERDICTS.name, JUDGEMENTS.name, REWARDS.name)
    ]


@contextmanager
def nobody() -> Iterator[Ask]:
    raise JudgeUnavailableError("the embedded judge did not start")
    yield


def test_why_some_get_no_reward(workspace: Workspace) -> None:
    ids = seal_groups(
        workspace,
        {
            "some": [Logged("a", 1.0), Logged("b"), Logged("c", None, fault="timeout")],
            "none": [Logged(a) for a in "abcd"],
            "few": [Logged(a) for a in "abc"],
        },
    )
    report = score(workspace, NIGHT, door=nobody())
    rows = rewards(workspace)
    assert [rows[i]["reason"] for i in ids["some"]] == [None, "no_verdict", "harness_fault"]
    assert [rows[i]["reason"] for i in ids["none"]] == ["judge_failed"] * 4
    assert [rows[i]["reason"] for i in ids["few"]] == ["too_few"] * 3
    assert report.reasons == {"harness_fault": 1, "judge_failed": 4, "no_verdict": 1, "too_few": 3}
    assert all((row["reward"] is None) == (row["reason"] is not None) for row in rows.values())


def test_held_out_and_audit_tasks_are_not_scored(workspace: Workspace) -> None:
    seal_groups(workspace, {"train": MIXED, "held": MIXED, "audited": MIXED}, splits={"held": "held_out", "audited": "audit"})
    assert score(workspace, NIGHT, door=nobody()).groups == 1
    assert workspace.lake.read(VERDICTS.name).num_rows == 3


def test_one_days_groups_can_be_scored_alone(workspace: Workspace) -> None:
    seal_groups(workspace, {"first": MIXED}, night=NIGHT)
    seal_groups(workspace, {"second": MIXED, "third": MIXED}, night="2026-11-21")
    assert score(workspace, "2026-11-22", day="2026-11-21", door=nobody()).groups == 2
    assert score(workspace, "2026-11-22", day="2026-11-21", door=nobody()).groups == 0
    assert score(workspace, "2026-11-22", door=nobody()).groups == 1


def test_a_verifier_and_its_change_add_rows_and_overwrite_none(tmp_path: Path) -> None:
    config = '[[rewards.verifiers]]\nname = "desk"\nkind = "python"\nentry = "verifier.py:verify"\n'
    workspace = make_workspace(tmp_path, config)
    (tmp_path / "verifier.py").write_text(
        "def verify(task_id, turns):\n    return 1.0 if turns[-1]['content'] == 'good' else 0.0\n"
    )
    ids = seal_groups(workspace, {"t": [Logged("good"), Logged("bad")]})["t"]
    score(workspace, NIGHT, door=nobody())
    assert [rewards(workspace)[i]["reward"] for i in ids] == [1_000_000, 0]
    first = canonical(workspace)
    (tmp_path / "verifier.py").write_text("def verify(task_id, turns):\n    return {'good': 1.0}[turns[-1]['content']]\n")
    report = score(workspace, NIGHT, door=nobody())
    assert (report.verifier_failures, report.reasons) == (1, {"verifier_failed": 1})
    for before, after in zip(first, canonical(workspace), strict=True):
        assert [row for row in after if row in before] == before


def test_of_several_verifiers_the_minimum_counts_and_siblings_measured_differently_do_not_mix(tmp_path: Path) -> None:
    config = (
        '[[rewards.verifiers]]\nname = "log"\nkind = "logged_outcome"\n'
        '[[rewards.verifiers]]\nname = "desk"\nkind = "python"\nentry = "verifier.py:verify"\n'
    )
    workspace = make_workspace(tmp_path, config)
    (tmp_path / "verifier.py").write_text(
        "def verify(task_id, turns):\n    return {'good': 1.0, 'bad': 0.25}.get(turns[-1]['content'])\n"
    )
    ids = seal_groups(
        workspace,
        {
            "both": [Logged("good", 0.5), Logged("bad", 0.5)],
            "desk_only": [Logged("good"), Logged("bad")],
            "some": [Logged("good", 1.0), Logged("bad"), Logged("else", 0.0)],
        },
    )
    score(workspace, NIGHT, door=nobody())
    rows = rewards(workspace)
    assert [rows[i]["reward"] for i in ids["both"]] == [500_000, 250_000]
    assert [rows[i]["reward"] for i in ids["desk_only"]] == [1_000_000, 250_000]
    assert [(rows[i]["reward"], rows[i]["reason"]) for i in ids["some"]] == [(1_000_000, None)] + [(None, "no_verdict")] * 2


def test_an_uncalibrated_judge_is_stored_and_reported_and_changes_no_reward(tmp_path: Path) -> None:
    workspace, asked = make_workspace(tmp_path, JUDGED), []
    ids = seal_groups(workspace, {"mixed": MIXED, "pass": [Logged(answer, 1.0) for answer in ("good", "bad", "bad", "bad")]})
    judge = score_by(lambda text: 0.75 if "good" in text else 0.25)
    report = score(workspace, NIGHT, door=asking(judge, asked))
    assert (report.judged, report.judge_failures, report.judge_requests, report.judge_cost_usd) == (2, 0, 2, 1.0)
    # good > bad as the tests say, fine = bad where the tests say better
    assert (report.agreement, report.agreement_pairs) == (0.75, 2)
    rows = rewards(workspace)
    assert [rows[i]["ruler_score"] for i in ids["mixed"]] == [750_000, 250_000, 250_000]
    assert [rows[i]["reward"] for i in ids["mixed"] + ids["pass"]] == [1_000_000, 0, 1_000_000, *[1_000_000] * 4]
    for row in workspace.lake.read(JUDGEMENTS.name).to_pylist():
        assert (row["status"], row["attempt"], row["night"], row["judge"]) == ("ok", 1, NIGHT, "openai/judge-1")
        assert sorted(t for shown in json.loads(row["presented"]).values() for t in shown) == sorted(json.loads(row["scores"]))


def test_replies_that_cannot_be_used_are_stored_named_and_asked_again(tmp_path: Path) -> None:
    workspace, asked = make_workspace(tmp_path, JUDGED), []
    seal_groups(workspace, {"mixed": MIXED})
    good = score_by(lambda text: 0.5)

    def second_time(body: dict[str, Any]) -> tuple[int, str]:
        return good(body) if len(asked) == 2 else (200, "I cannot rate this.")

    report = score(workspace, NIGHT, door=asking(second_time, asked))
    assert (report.judged, report.judge_failures, report.judge_requests) == (1, 0, 2)
    rows = sorted(workspace.lake.read(JUDGEMENTS.name).to_pylist(), key=lambda row: row["attempt"])
    assert [(row["attempt"], row["status"], row["reply"] == "I cannot rate this.") for row in rows] == [
        (1, "bad_reply", True),
        (2, "ok", False),
    ]
    assert "not JSON" in rows[0]["error"]
    assert rows[0]["error"] in asked[1][-1]["content"]
    assert rows[0]["judgement_id"] == rows[1]["judgement_id"]


def test_a_group_whose_attempts_are_used_up_is_left_and_its_tests_stand(tmp_path: Path) -> None:
    workspace, asked = make_workspace(tmp_path, JUDGED), []
    ids = seal_groups(workspace, {"mixed": MIXED, "untested": [Logged(answer) for answer in "abcd"]})
    report = score(workspace, NIGHT, door=asking(lambda body: (200, ":"), asked))
    assert (report.judged, report.judge_failures, report.judge_requests) == (0, 2, 6)
    rows = rewards(workspace)
    assert [rows[i]["reward"] for i in ids["mixed"]] == [1_000_000, 0, 1_000_000]
    assert [rows[i]["reason"] for i in ids["untested"]] == ["judge_failed"] * 4
    # not again tonight; on another night the group that has nothing but the judge is asked about once more
    assert score(workspace, NIGHT, door=asking(lambda body: (200, ":"), asked)).judge_requests == 0
    later = score(workspace, "2026-11-21", door=asking(score_by(lambda text: 0.5), asked))
    assert (later.judged, later.judge_requests, later.reasons) == (1, 1, {"no_score": 4})
    assert max(row["attempt"] for row in workspace.lake.read(JUDGEMENTS.name).to_pylist()) == 4


def test_a_judge_that_is_away_is_not_waited_for_group_after_group(tmp_path: Path) -> None:
    workspace, asked = make_workspace(tmp_path, JUDGED), []
    ids = seal_groups(workspace, {f"t{number}": MIXED for number in range(40)})
    report = score(workspace, NIGHT, door=asking(lambda body: (503, "away"), asked))
    assert (report.judged, report.judge_failures) == (0, 40)
    assert report.judge_requests == len(asked) < 40
    assert report.reasons == {}
    assert {row["status"] for row in workspace.lake.read(JUDGEMENTS.name).to_pylist()} == {"unavailable"}
    assert len(rewards(workspace)) == sum(len(members) for members in ids.values())


def test_the_limit_prefers_mixed_groups_and_holds_over_a_second_call(tmp_path: Path) -> None:
    workspace, asked = make_workspace(tmp_path, JUDGED + "groups_per_night = 2\n"), []
    tasks = {f"equal{number}": [Logged("a", 1.0), Logged("b", 1.0)] for number in range(6)}
    seal_groups(workspace, {**tasks, "mixed1": MIXED, "mixed2": MIXED})
    report = score(workspace, NIGHT, door=asking(score_by(lambda text: 0.5), asked))
    assert (report.judged, report.agreement_pairs) == (2, 4)
    seal_groups(workspace, {"mixed3": MIXED})
    assert score(workspace, NIGHT, door=asking(score_by(lambda text: 0.5), asked)).judge_requests == 0
    assert len(asked) == 2


def test_identical_siblings_are_no_case_for_the_judge(tmp_path: Path) -> None:
    workspace, asked = make_workspace(tmp_path, JUDGED), []
    seal_groups(workspace, {"same": [Logged("a", 1.0), Logged("a", 1.0)]})
    assert score(workspace, NIGHT, door=asking(score_by(lambda text: 0.5), asked)).judge_requests == 0


def test_an_anchor_is_shown_and_reported_and_counts_nowhere(tmp_path: Path) -> None:
    workspace, asked = make_workspace(tmp_path, JUDGED), []
    anchor = Logged("better", 1.0, policy_version=None, role="anchor")
    tasks: dict[str, Sequence[Logged]] = {
        "fail": [*FAILED, anchor],
        "same": [*[Logged("a", 1.0)] * 4, anchor],
        "fault": [*FAILED, Logged("broke", policy_version=None, role="anchor", fault="timeout")],
    }
    ids = seal_groups(workspace, tasks)
    plain = make_workspace(tmp_path / "plain", JUDGED)
    seal_groups(plain, {task: attempts[:4] for task, attempts in tasks.items()})
    by_text = score_by(lambda text: 0.9 if "better" in text else 0.5 if "bad" in text else 0.1)
    report, without = (score(found, NIGHT, door=asking(by_text, asked)) for found in (workspace, plain))
    for name in (
        "groups",
        "groups_mixed",
        "groups_all_pass",
        "groups_all_fail",
        "judged",
        "mean_reward",
        "pass_rate",
    ):
        assert getattr(report, name) == getattr(without, name)
    assert (report.groups_all_fail, report.judged, report.agreement_pairs) == (2, 2, 0)  # identical ones beside it have no order
    anchors = {ids[task][4] for task in tasks}
    assert anchors.isdisjoint(rewards(workspace))
    assert {row["reward"] for row in rewards(workspace).values()} == {0, 1_000_000}
    shown = {row["trajectory_id"]: row["ruler_score"] for row in rewards(workspace).values()}
    assert [shown[i] for i in ids["fail"][:2]] == [100_000, 500_000]
    judged = [json.loads(row["scores"]) for row in workspace.lake.read(JUDGEMENTS.name).to_pylist()]
    assert {ids["fail"][4]: 900_000}.items() <= next(scores for scores in judged if ids["fail"][0] in scores).items()
    assert ids["fault"][4] not in next(scores for scores in judged if ids["fault"][0] in scores)


def test_an_anchor_that_became_another_attempt_is_shown_no_more(tmp_path: Path) -> None:
    workspace, asked = make_workspace(tmp_path, JUDGED), []
    ids = seal_groups(workspace, {"t": [*FAILED, Logged("other", policy_version=None, role="anchor")]})
    changed = workspace.lake.read(TRAJECTORIES.name).to_pylist()
    for row in changed:
        row["content_id"] = "con_another" if row["trajectory_id"] == ids["t"][4] else row["content_id"]
    table = pa.Table.from_pylist(changed, schema=TRAJECTORIES.schema)
    workspace.lake.replace_computed(TRAJECTORIES.name, sorted({row["day"] for row in changed}), lambda _: table)
    assert score(workspace, NIGHT, door=asking(score_by(lambda text: 0.5), asked)).judge_requests == 1
    (row,) = workspace.lake.read(JUDGEMENTS.name).to_pylist()
    assert sorted(json.loads(row["scores"])) == sorted(ids["t"][:4])


def test_stored_judgements_are_the_cache(tmp_path: Path) -> None:
    """Another weight asks for new rewards; the judge, whose request is the same, is not asked again. Another rubric is."""
    workspace, asked = make_workspace(tmp_path, JUDGED), []
    seal_groups(workspace, {"mixed": MIXED})
    judge = score_by(lambda text: 0.5)
    score(workspace, NIGHT, door=asking(judge, asked))
    workspace = make_workspace(tmp_path, JUDGED + "[rewards]\njudge_weight = 0.05\n")
    report = score(workspace, "2026-11-21", door=asking(judge, asked))
    assert (report.groups, report.judged, report.judge_requests) == (1, 1, 0)
    (tmp_path / "rubrics" / "strict.md").write_text("Be strict.")
    report = score(workspace, "2026-11-21", rubric="strict", door=asking(judge, asked))
    assert (report.groups, report.judge_requests) == (1, 1)
    assert len({row["rubric_hash"] for row in workspace.lake.read(REWARDS.name).to_pylist()}) == 2


CHILD = """
import sys
from tests.rewards.test_score import asking, score
from tests.judge_double import score_by
from pipelines.workspace import Workspace
score(Workspace.open(sys.argv[1]), "2026-11-20", door=asking(score_by(lambda text: 0.5), []))
"""


@pytest.mark.parametrize(
    "step",
    [f"{table}:{when}" for table in (VERDICTS.name, JUDGEMENTS.name, REWARDS.name) for when in ("before_commit", "after_commit")],
)
def test_killed_anywhere_and_run_again_it_gives_the_same(tmp_path: Path, step: str) -> None:
    straight, killed = make_workspace(tmp_path / "straight", JUDGED), make_workspace(tmp_path / "killed", JUDGED)
    asked: list[Any] = []
    for workspace in (straight, killed):
        seal_groups(workspace, {"mixed": MIXED})
    score(straight, NIGHT, door=asking(score_by(lambda text: 0.5), asked))
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(killed.folder)],
        env={**os.environ, "NIGHTSHIFT_KILL_AT": step, "PYTHONPATH": "."},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    score(killed, NIGHT, door=asking(score_by(lambda text: 0.5), asked))
    assert without_seconds(killed) == without_seconds(straight)


def without_seconds(workspace: Workspace) -> Any:
    return [[{k: v for k, v in row.items() if k != "seconds"} for row in table] for table in canonical(workspace)]
