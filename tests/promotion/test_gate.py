"""Stage 10: what promotes, what holds and why, who wins a race, and the one history that is left (I13)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines import chain, checkpoints, promotion
from pipelines.errors import PromotionRefusedError, UnknownReferenceError
from pipelines.reports import Decided
from pipelines.schemas import DECISIONS, SIGNALS
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.night_rows import NIGHT, answers, checkpoint_row, day_after, freeze, write_held_out

NUM_TASKS = 20
CONFIG = """
[policy]
name = "agent"
[harness]
entry = "harness.py:rollout"
[evaluation]
held_out = "held_out.jsonl"
min_tasks = 20
bootstrap_draws = 1000
[registry]
uri = "sqlite:////dev/null/nowhere/mlflow.db"
"""
"""A registry that never answers: the lake's row is the truth, so every test here must do without one."""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return _opened(tmp_path)


def _opened(folder: Path, config: str = CONFIG) -> Workspace:
    write_held_out(folder / "workspace", NUM_TASKS)
    (folder / "workspace" / "verifier.py").write_text("def verify(task_id, turns):\n    return 1.0\n")
    (folder / "workspace" / "harness.py").write_text("async def rollout(task, client):\n    pass\n")
    verifier = '[[rewards.verifiers]]\nname = "v"\nkind = "python"\nentry = "verifier.py:verify"\n'
    return make_workspace(folder / "workspace", config + verifier)


def _passing(num_passing: int, num_tasks: int = NUM_TASKS) -> dict[str, list[bool | None]]:
    return {f"task-{number:03d}": [number < num_passing] * 2 for number in range(num_tasks)}


def _challenger(
    workspace: Workspace, version: int = 1, *, night: str = NIGHT, marks: tuple[str, ...] = (), passing: int = 15
) -> str:
    checkpoint_id = f"ckp_{version}"
    checkpoint_row(workspace, checkpoint_id, version, night=night, marks=marks)
    answers(workspace, checkpoint_id, _passing(passing))
    return checkpoint_id


def _alarm(workspace: Workspace, night: str, state: str = "alarm") -> None:
    row = {"night": night, "signal": "clip_fraction", "value": 0.7, "unit": "share", "state": state, "detail": "too high"}
    workspace.lake.replace_computed(SIGNALS.name, [night], lambda _: pa.Table.from_pylist([row], schema=SIGNALS.schema))


def _decisions(workspace: Workspace) -> list[dict]:
    return workspace.lake.read(DECISIONS.name).sort_by("number").to_pylist()


def _outcome(decided: Decided) -> tuple[str, str, str]:
    return decided.decision, decided.reason, decided.policy_version


def test_a_better_challenger_is_promoted_with_its_numbers(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace)
    decided = promotion.decide(workspace, NIGHT)
    assert _outcome(decided) == ("promote", "better", "agent@1")
    assert (decided.champion_pass_rate, decided.challenger_pass_rate, decided.difference) == (0.25, 0.75, 0.5)
    assert decided.num_tasks == NUM_TASKS and decided.lower_bound is not None and 0.25 < decided.lower_bound < 0.5
    assert chain.champion(workspace).policy_version == "agent@1"


def test_mlflow_that_does_not_answer_is_told_and_undoes_nothing(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace)
    problem = promotion.decide(workspace, NIGHT).alias_problem
    assert problem is not None and "MLflow at sqlite:////dev/null" in problem and "\n" not in problem
    assert chain.champion(workspace).version == 1


def test_the_night_again_is_the_same_decision_even_after_promotion_and_rollback(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace)
    first = promotion.decide(workspace, NIGHT)
    again = promotion.decide(workspace, NIGHT)
    assert again.reused and not first.reused
    assert (again.number, again.lower_bound, again.champion) == (first.number, first.lower_bound, first.champion)
    promotion.rollback(workspace)
    assert promotion.decide(workspace, NIGHT).number == first.number
    assert chain.champion(workspace).version == 0
    assert len(_decisions(workspace)) == 2


def test_an_equal_challenger_is_held_and_the_champion_stays(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(10))
    _challenger(workspace, passing=10)
    assert _outcome(promotion.decide(workspace, NIGHT)) == ("hold", "not_better", "agent@0")


def test_a_damaged_challenger_is_held(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(10))
    _challenger(workspace, passing=0)
    decided = promotion.decide(workspace, NIGHT)
    assert _outcome(decided) == ("hold", "not_better", "agent@0") and decided.difference == -0.5


def test_one_task_more_is_no_proof(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(10))
    _challenger(workspace, passing=11)
    decided = promotion.decide(workspace, NIGHT)
    assert decided.difference == 0.05 and decided.lower_bound == 0.0 and decided.reason == "not_better"


def test_few_tasks_decide_nothing_however_clear(tmp_path: Path) -> None:
    workspace = _opened(tmp_path, CONFIG.replace("min_tasks = 20", "min_tasks = 21"))
    answers(workspace, chain.BASE, _passing(0))
    _challenger(workspace, passing=20)
    assert _outcome(promotion.decide(workspace, NIGHT)) == ("hold", "too_few_tasks", "agent@0")


def test_a_failure_is_no_number_and_leaves_the_pair_on_both_sides(workspace: Workspace) -> None:
    """Champion's failed attempts drop out with the challenger's of the same number; a task without pairs is not counted."""
    champion = _passing(10) | {"task-000": [None, None], "task-001": [None, False]}
    answers(workspace, chain.BASE, champion)
    checkpoint_row(workspace, "ckp_1", 1)
    answers(workspace, "ckp_1", _passing(10) | {"task-001": [False, True], "task-002": [True, None]})
    decided = promotion.decide(workspace, NIGHT)
    assert decided.num_tasks == NUM_TASKS - 1 and decided.reason == "too_few_tasks"
    assert decided.difference == pytest.approx(1 / 19)  # task-001's second attempt alone differs


@pytest.mark.parametrize("marks", [("again",), ("judge_only",), ("shuffled",)])
def test_a_mark_holds_what_is_better(workspace: Workspace, marks: tuple[str, ...]) -> None:
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace, marks=marks)
    assert _outcome(promotion.decide(workspace, NIGHT)) == ("hold", "marked", "agent@0")


def test_an_open_alarm_of_the_night_holds_what_is_better(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace)
    _alarm(workspace, NIGHT)
    assert _outcome(promotion.decide(workspace, NIGHT)) == ("hold", "alarm", "agent@0")


def test_an_alarm_of_another_night_or_a_signal_without_alarm_does_not(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace)
    _alarm(workspace, day_after(NIGHT, -1))
    _alarm(workspace, NIGHT, state="ok")
    assert promotion.decide(workspace, NIGHT).decision == "promote"


def test_nothing_trained_is_one_hold_a_night(workspace: Workspace) -> None:
    for night in (NIGHT, NIGHT, day_after(NIGHT, 1)):
        assert _outcome(promotion.decide(workspace, night)) == ("hold", "nothing_trained", "agent@0")
    assert [(row["number"], row["night"]) for row in _decisions(workspace)] == [(1, NIGHT), (2, day_after(NIGHT, 1))]


def test_without_a_harness_nights_end_in_hold(tmp_path: Path) -> None:
    workspace = _opened(tmp_path, CONFIG.replace('entry = "harness.py:rollout"', ""))
    checkpoint_row(workspace, "ckp_1", 1)
    assert _outcome(promotion.decide(workspace, NIGHT)) == ("hold", "no_harness", "agent@0")


def test_a_challenger_that_was_never_measured_is_no_hold(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(5))
    checkpoint_row(workspace, "ckp_1", 1)
    with pytest.raises(PromotionRefusedError, match="agent@1 was never measured"):
        promotion.decide(workspace, NIGHT)
    assert _decisions(workspace) == []


def test_a_decision_against_a_champion_of_yesterday_is_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace, 1)
    _challenger(workspace, 2, night=day_after(NIGHT, 1))
    gate = promotion.gate

    def slow_gate(*arguments: object) -> promotion.Verdict:
        verdict = gate(*arguments)  # type: ignore[arg-type]  # passed on as they came
        monkeypatch.setattr(promotion, "gate", gate)
        promotion.settle(workspace, day_after(NIGHT, 1))
        return verdict

    monkeypatch.setattr(promotion, "gate", slow_gate)
    with pytest.raises(PromotionRefusedError, match=r"measured against agent@0, and meanwhile the champion has changed"):
        promotion.settle(workspace, NIGHT)
    assert [row["champion"] for row in _decisions(workspace)] == ["ckp_2"]


def test_racing_promoters_leave_one_promotion_and_a_linear_history(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(2))
    nights = [day_after(NIGHT, number) for number in range(4)]
    for number, night in enumerate(nights):
        _challenger(workspace, number + 1, night=night, passing=15)
    program = """
import sys, time
from pathlib import Path
from pipelines import chain, promotion
from pipelines.errors import PromotionRefusedError
from pipelines.workspace import Workspace
assert "mlflow" not in sys.modules and "dagster" not in sys.modules
workspace, night = Workspace.open(sys.argv[1]), sys.argv[2]
Path(sys.argv[3], night).touch()
while not Path(sys.argv[3], "go").exists():
    time.sleep(0.002)
try:
    row, reused = promotion.settle(workspace, night)
    print(row["decision"], row["number"])
except PromotionRefusedError as problem:
    print("refused")
"""
    ready = workspace.folder / "ready"
    ready.mkdir()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(workspace.folder), night, str(ready)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        for night in nights
    ]
    while len(list(ready.iterdir())) < len(racers) and all(racer.poll() is None for racer in racers):
        time.sleep(0.01)
    (ready / "go").touch()
    said = sorted(racer.communicate(timeout=60)[0].strip() for racer in racers)
    assert [racer.returncode for racer in racers] == [0] * 4
    # whoever read the champion before the first commit is stale and refused; whoever read it after is measured against
    # the new champion, whose answers here are as good as its own, and held
    assert said.count("promote 1") == 1
    rows = _decisions(workspace)
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    assert said.count("refused") == 4 - len(rows)
    first = rows[0]
    assert (first["measured_against"], first["champion"]) == ("base", first["challenger"])
    assert all((row["decision"], row["measured_against"]) == ("hold", first["champion"]) for row in rows[1:])


def test_rollback_walks_back_promotion_by_promotion(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(2))
    _challenger(workspace, 1, passing=10)
    promotion.decide(workspace, NIGHT)
    _challenger(workspace, 2, night=day_after(NIGHT, 1), passing=20)
    promotion.decide(workspace, day_after(NIGHT, 1))
    assert chain.champion(workspace).version == 2
    assert _outcome(promotion.rollback(workspace)) == ("rollback", "by_hand", "agent@1")
    assert _outcome(promotion.rollback(workspace)) == ("rollback", "by_hand", "agent@0")
    with pytest.raises(PromotionRefusedError, match="agent@0 was never promoted"):
        promotion.rollback(workspace)
    rows = _decisions(workspace)
    assert [row["number"] for row in rows] == [1, 2, 3, 4]
    assert [row["measured_against"] for row in rows[1:]] == [row["champion"] for row in rows[:-1]]


def test_by_hand_goes_through_the_same_gate(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace, 1, passing=15)
    _challenger(workspace, 2, night=day_after(NIGHT, 1), passing=4)
    promotion.decide(workspace, NIGHT)
    promotion.rollback(workspace)
    with pytest.raises(PromotionRefusedError, match=r"the gate holds agent@2: not_better, -0\.050 on 20 tasks"):
        promotion.promote(workspace, 2)
    assert _outcome(promotion.promote(workspace, 1)) == ("promote", "by_hand", "agent@1")
    with pytest.raises(PromotionRefusedError, match="agent@1 is the champion already"):
        promotion.promote(workspace, 1)
    for version, said in ((0, "is the base model"), (7, "does not exist")):
        with pytest.raises(UnknownReferenceError, match=said):
            promotion.promote(workspace, version)


def test_a_kill_after_the_row_leaves_the_promotion(workspace: Workspace) -> None:
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace)
    program = f"""
from pipelines import promotion
from pipelines.workspace import Workspace
promotion.decide(Workspace.open({str(workspace.folder)!r}), {NIGHT!r})
"""
    died = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env={"NIGHTSHIFT_KILL_AT": "promotion:before_alias", "PATH": ""},
    )
    assert died.returncode == -9
    assert promotion.settle(workspace, NIGHT)[1]
    assert chain.champion(workspace).version == 1


def test_checkpoints_are_listed_with_the_last_decision_about_them(workspace: Workspace) -> None:
    freeze(workspace, "bat_1")
    answers(workspace, chain.BASE, _passing(5))
    _challenger(workspace)
    promotion.decide(workspace, NIGHT)
    checkpoint_row(workspace, "ckp_2", 2, night=day_after(NIGHT, 1), parent="ckp_1", batches=["bat_1"])
    first, second = checkpoints.listed(workspace)
    assert (first["policy_version"], first["champion"], first["decision"], first["parent"]) == (
        "agent@1",
        True,
        "promote",
        "agent@0",
    )
    assert first["held_out_pass_rate"] == 0.75
    assert (second["policy_version"], second["champion"], second["decision"], second["parent"]) == (
        "agent@2",
        False,
        None,
        "agent@1",
    )
    assert second["batches"] == ["bat_1"]
