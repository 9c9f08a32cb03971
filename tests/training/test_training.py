"""Stage 6: what a run is named by, what it keeps, and how every way for it to die reads. The trainer is a tiny script here."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines import training
from pipelines.errors import BusyError, TrainingError
from pipelines.workspace import Workspace
from tests.conftest import make_workspace
from tests.night_rows import NIGHT, checkpoint_row, day_after, freeze, write_checkpoint
from trainer.run import RunConfig


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return _opened(tmp_path)


def _opened(folder: Path, settings: str = "", policy: str = "") -> Workspace:
    model = folder / "workspace" / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text("{}")
    (model / "tokenizer.json").write_text("{}")
    return make_workspace(
        folder / "workspace", f'[policy]\nname = "agent"\nbase_model = "model"\n{policy}\n[training]\n{settings}\n'
    )


def _scripted(plan: training.TrainingPlan, program: str) -> training.TrainingPlan:
    return replace(plan, command=[sys.executable, "-c", program])


def test_nothing_pending_is_a_normal_result(workspace: Workspace) -> None:
    plan = training.plan(workspace, NIGHT)
    assert plan.done and plan.run_id is None and plan.why_nothing
    trained = training.finish(workspace, plan, training.launch(workspace, plan))
    assert trained.folder is None and trained.why_nothing == plan.why_nothing


def test_run_toml_is_what_the_trainer_reads(workspace: Workspace) -> None:
    freeze(workspace, "bat_2")
    freeze(workspace, "bat_1", night=day_after(NIGHT, -1))
    plan = training.plan(workspace, NIGHT)
    assert plan.folder is not None and not plan.done
    run = RunConfig.read(plan.folder / "run.toml")
    assert (run.run_id, run.night, run.lane) == (plan.run_id, NIGHT, "grpo")
    assert [folder.name for folder in run.batch_folders] == ["bat_1", "bat_2"] == plan.batch_ids
    assert run.batch_folders[0] == workspace.batches / "bat_1"
    assert (run.base_model, run.parent_id, run.parent_path) == (str(workspace.path("model")), "", None)
    assert run.out_folder == plan.checkpoint
    assert plan.command[1:] == ["-m", "trainer", "--config", str(plan.folder / "run.toml")]


def test_a_run_is_named_by_its_batches_and_its_configuration_alone(tmp_path: Path) -> None:
    workspace = _opened(tmp_path)
    freeze(workspace, "bat_1")
    first = training.plan(workspace, NIGHT).run_id
    assert training.plan(workspace, day_after(NIGHT, 1)).run_id == first
    assert training.plan(_opened(tmp_path, policy="temperature = 0.5"), NIGHT).run_id == first
    assert training.plan(_opened(tmp_path, "epochs = 2"), NIGHT).run_id != first
    freeze(workspace, "bat_2", groups=["grp_2"])
    assert training.plan(workspace, NIGHT).run_id != first


def test_the_parent_is_asked_for_once(tmp_path: Path) -> None:
    workspace = _opened(tmp_path, 'start = "latest"')
    freeze(workspace, "bat_1")
    plan = training.plan(workspace, NIGHT)
    checkpoint_row(workspace, "ckp_other", 1)
    again = training.plan(workspace, NIGHT)
    assert again.run_id == plan.run_id and again.folder is not None
    assert tomllib.loads((again.folder / "run.toml").read_text())["parent_id"] == ""
    freeze(workspace, "bat_2", groups=["grp_2"])
    other = training.plan(workspace, NIGHT)
    assert other.folder is not None
    written = tomllib.loads((other.folder / "run.toml").read_text())
    assert (written["parent_id"], written["parent_folder"]) == (
        "ckp_other",
        str(workspace.folder / "runs/run_ckp_other/checkpoint"),
    )


def test_a_finished_run_is_reused_and_its_run_toml_left_alone(workspace: Workspace) -> None:
    freeze(workspace, "bat_1")
    plan = training.plan(workspace, NIGHT)
    assert plan.folder is not None and plan.run_id is not None and plan.checkpoint is not None
    write_checkpoint(plan.checkpoint, plan.run_id, plan.batch_ids)
    (plan.folder / "run.toml").write_text("# kept")
    again = training.plan(workspace, day_after(NIGHT, 3))
    assert again.done and again.folder == plan.folder
    must_not_run = _scripted(again, "raise SystemExit('trained twice')")
    trained = training.finish(workspace, again, training.launch(workspace, must_not_run))
    assert trained.reused and trained.folder == plan.checkpoint and trained.metrics == {"loss": 0.75}
    assert (plan.folder / "run.toml").read_text() == "# kept"


def test_a_night_finds_its_registered_run_again(workspace: Workspace) -> None:
    """The night that registered it, and the earlier night whose batch it trained."""
    freeze(workspace, "bat_1", night=day_after(NIGHT, -1))
    plan = training.plan(workspace, NIGHT)
    assert plan.run_id is not None and plan.checkpoint is not None
    checkpoint_id = write_checkpoint(workspace.runs / f"run_ckp_{plan.run_id}" / "checkpoint", plan.run_id, plan.batch_ids)
    checkpoint_row(workspace, f"ckp_{plan.run_id}", 1, batches=plan.batch_ids)
    assert checkpoint_id  # the row above stands for it; its folder is what matters here
    for night in (NIGHT, day_after(NIGHT, -1)):
        again = training.plan(workspace, night)
        assert again.done and again.checkpoint == workspace.runs / f"run_ckp_{plan.run_id}" / "checkpoint"
    assert training.plan(workspace, day_after(NIGHT, 1)).run_id is None


def test_launch_runs_the_command_and_follows_its_steps(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY")  # which tests have from conftest.py: the child must get it from the plan
    freeze(workspace, "bat_1")
    plan = training.plan(workspace, NIGHT)
    program = f"""
import json, os
from pathlib import Path
assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE" and os.environ["EXTRA"] == "1"
import trainer.contract  # the child's folder is the checkout
with open({str(plan.folder)!r} + "/metrics.jsonl", "w") as metrics:
    for step in (1, 2, 3):
        metrics.write(json.dumps({{"step": step, "num_steps": 3, "loss": 0.5}}) + "\\n")
from tests.night_rows import write_checkpoint
write_checkpoint(Path({str(plan.checkpoint)!r}), {plan.run_id!r}, {plan.batch_ids!r})
"""
    steps: list[int] = []
    returncode = training.launch(
        workspace, _scripted(plan, program), env={"EXTRA": "1"}, on_step=lambda step: steps.append(step["step"])
    )
    trained = training.finish(workspace, plan, returncode)
    assert trained.run_id == plan.run_id and trained.batch_ids == ["bat_1"] and not trained.reused
    assert steps[-1] in (2, 3)  # write_checkpoint rewrites the file with two steps at the very end


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL; probably the machine ran out of memory"),
        (
            "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGTERM)",
            "killed by SIGTERM. Nothing was registered",
        ),
        ("print('batch bat_1: rows differ'); raise SystemExit(3)", "refused .* Its last line: batch bat_1: rows differ"),
        ("print('loss is nan in row 7'); raise SystemExit(4)", "diverged.*learning_rate.*loss is nan in row 7"),
        ("raise OSError('No space left on device')", "exit code 1.*Its last line: OSError: No space left on device"),
        ("raise SystemExit(137)", "killed by SIGKILL"),
        ("print('all is well')", r"exit code 0 but left no manifest.json .*all is well"),
        ("pass", "It printed nothing"),
    ],
)
def test_every_way_to_die_is_one_clear_line_and_the_same_command_works_after(
    workspace: Workspace, program: str, said: str
) -> None:
    freeze(workspace, "bat_1")
    plan = training.plan(workspace, NIGHT)
    returncode = training.launch(workspace, _scripted(plan, program))
    with pytest.raises(TrainingError, match=said) as caught:
        training.finish(workspace, plan, returncode)
    assert "\n" not in str(caught.value)
    again = training.plan(workspace, NIGHT)
    assert not again.done and again.run_id == plan.run_id and again.checkpoint is not None and again.run_id is not None
    write_checkpoint(again.checkpoint, again.run_id, again.batch_ids)
    assert training.finish(workspace, again, 0).folder == again.checkpoint


def test_a_manifest_of_another_run_is_refused(workspace: Workspace) -> None:
    freeze(workspace, "bat_1")
    plan = training.plan(workspace, NIGHT)
    assert plan.checkpoint is not None
    write_checkpoint(plan.checkpoint, "run_of_others", ["bat_9"])
    with pytest.raises(TrainingError, match="is that of run run_of_others"):
        training.finish(workspace, plan, 0)


def test_a_damaged_checkpoint_is_named_and_not_trained_over(workspace: Workspace) -> None:
    freeze(workspace, "bat_1")
    plan = training.plan(workspace, NIGHT)
    assert plan.checkpoint is not None and plan.run_id is not None
    write_checkpoint(plan.checkpoint, plan.run_id, plan.batch_ids)
    (plan.checkpoint / "adapter_model.safetensors").write_text("damaged")
    with pytest.raises(TrainingError, match=r"adapter_model\.safetensors is not the file .* move .* away"):
        training.plan(workspace, NIGHT)


def test_one_run_at_a_time(workspace: Workspace) -> None:
    freeze(workspace, "bat_1")
    plan = training.plan(workspace, NIGHT)
    with training.one_at_a_time(workspace), pytest.raises(BusyError, match="a trainer run is going on already"):
        training.launch(workspace, plan)


def test_a_killed_launcher_leaves_no_lock(workspace: Workspace) -> None:
    program = f"""
import os, signal
from pipelines import training
from pipelines.workspace import Workspace
with training.one_at_a_time(Workspace.open({str(workspace.folder)!r})):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run([sys.executable, "-c", program], cwd=training.CHECKOUT)
    assert died.returncode == -9
    with training.one_at_a_time(workspace):
        pass


def test_a_line_of_metrics_still_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert training.read_metrics(path) == []
    path.write_text('{"step": 1}\n{"step"')
    assert training.read_metrics(path) == [{"step": 1}]
