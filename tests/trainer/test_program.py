"""`python -m trainer --config run.toml`, from outside: what comes out, and what a kill, a wrong setting or a full stop leave behind."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.runs import freeze, make_row, write_run
from trainer.__main__ import main
from trainer.adapter import ADAPTER_FILE, OPTIMIZER_FILE, Parent, Policy
from trainer.batches import BaseModel, Row, read
from trainer.contract import CheckpointManifest
from trainer.embedded import tokenizer_hash
from trainer.prefix_tree import plant
from trainer.run import RunConfig

ROOT = Path(__file__).resolve().parents[2]
METRICS = {"step", "num_steps", "loss", "clip_fraction", "ratio_mean", "ratio_max", "ess", "grad_norm", "num_tokens", "seconds"}


def metrics_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]


def adapter_of(path: Path, out: str = "checkpoint") -> bytes:
    return (path.parent / out / ADAPTER_FILE).read_bytes()


def test_a_run_by_hand_and_asking_again(run_toml: Callable[..., Path], tmp_path: Path):
    path = run_toml()
    command = [sys.executable, "-m", "trainer", "--config", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    assert "step 1/4" in first.stdout and "backend peft (auto: " in first.stdout
    manifest = CheckpointManifest.read(path.parent / "checkpoint")
    assert f"checkpoint {manifest.checkpoint_id} written" in first.stdout
    found = metrics_of(path)
    assert all(set(line) == METRICS for line in found)
    assert [(line["step"], line["num_steps"]) for line in found] == [(number, 4) for number in range(1, 5)]
    assert sum(line["num_tokens"] for line in found) == manifest.num_trained_tokens

    before = {file.name: file.stat().st_mtime_ns for file in (path.parent / "checkpoint").iterdir()}
    again = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert again.returncode == 0 and f"checkpoint {manifest.checkpoint_id} was already there" in again.stdout
    assert "step" not in again.stdout
    assert {file.name: file.stat().st_mtime_ns for file in (path.parent / "checkpoint").iterdir()} == before


def test_a_kill_leaves_no_checkpoint_and_the_same_command_works_again(run_toml: Callable[..., Path]):
    path = run_toml(epochs=100)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)  # the child stops at a full pipe: it cannot finish before it is killed
    child = subprocess.Popen(
        [sys.executable, "-m", "trainer", "--config", str(path)], cwd=ROOT, stdout=writing, stderr=subprocess.DEVNULL
    )
    os.close(writing)
    with os.fdopen(reading) as lines:
        assert any(line.startswith("step 3/200") for line in lines)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    assert len(metrics_of(path)) >= 3
    assert not (path.parent / "checkpoint").exists()

    half_built = path.parent / "checkpoint.partial"  # what a kill while the checkpoint is written leaves
    half_built.mkdir()
    (half_built / "left.safetensors").write_bytes(b"half")
    assert main(["--config", str(path)]) == 0
    assert len(metrics_of(path)) == 200
    assert "left.safetensors" not in CheckpointManifest.read(path.parent / "checkpoint").files
    assert not half_built.exists()


def test_the_same_run_gives_the_same_bytes(run_toml: Callable[..., Path]):
    paths = [run_toml("first"), run_toml("second"), run_toml("third", seed=1)]
    for path in paths:
        assert main(["--config", str(path)]) == 0
    first, second, third = (adapter_of(path) for path in paths)
    assert first == second
    assert (paths[0].parent / "checkpoint" / OPTIMIZER_FILE).read_bytes() == (
        paths[1].parent / "checkpoint" / OPTIMIZER_FILE
    ).read_bytes()
    assert (
        CheckpointManifest.read(paths[0].parent / "checkpoint").checkpoint_id
        == CheckpointManifest.read(paths[1].parent / "checkpoint").checkpoint_id
    )
    assert third != first


def test_the_control_trains_on_other_advantages(run_toml: Callable[..., Path], capsys):
    plain, control = run_toml("plain"), run_toml("control", shuffle_advantages=True)
    assert main(["--config", str(plain)]) == 0
    assert "a control" not in capsys.readouterr().out
    assert main(["--config", str(control)]) == 0
    assert "a control" in capsys.readouterr().out
    assert adapter_of(plain) != adapter_of(control)


@pytest.mark.parametrize("cause", ["learning_rate", "behaviour"])
def test_divergence_ends_with_its_own_code_and_names_the_rows(run_toml: Callable[..., Path], rows, capsys, cause: str):
    if cause == "behaviour":  # a ratio beyond float32
        rows[3]["behaviour_logprobs"][-1] = -1e4
        path = run_toml()
    else:
        path = run_toml(learning_rate=1e30)
    assert main(["--config", str(path)]) == 4
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no checkpoint was written" in error
    named = [row["row_hash"] for row in rows if row["row_hash"] in error]
    assert named if cause == "learning_rate" else rows[3]["row_hash"] in named or " more;" in error
    assert not list(path.parent.glob("checkpoint*"))


def test_an_output_that_cannot_be_written_is_one_line_and_mends(run_toml: Callable[..., Path], capsys):
    path = run_toml(out="blocked/checkpoint")
    (path.parent / "blocked").write_text("a file where a folder has to be")
    assert main(["--config", str(path)]) == 1
    assert "run the same command again" in capsys.readouterr().err
    (path.parent / "blocked").unlink()
    assert main(["--config", str(path)]) == 0


def test_it_learns_the_answer_with_the_positive_advantage(tmp_path: Path, toy_model: Path):
    hashed, prompt = tokenizer_hash(toy_model), [5, 6, 7, 8, 9, 10]
    answers = {"good": [30, 31, 32], "bad": [40, 41, 42]}
    run = RunConfig.read(write_run(tmp_path / "base", [Path("none")], toy_model))
    model = BaseModel.read(run)
    base = Policy(run, model, None)

    def logprobs(policy: Policy) -> dict[str, list[float]]:
        found = {}
        for name, answer in answers.items():
            row = Row(name, name, "grp", tuple(prompt + answer), np.arange(6, 9), np.zeros(3, np.float32), 0.0, 1.0)
            with torch.no_grad():
                found[name] = policy.logprobs(plant([row], 100)[0]).tolist()
        return found

    before = logprobs(base)
    made = [
        make_row("one", index, prompt, answers[name], advantage=advantage, logprobs=before[name], tokenizer_hash=hashed)
        for index, (name, advantage) in enumerate([("good", 1.0), ("bad", -1.0)])
    ]
    batch = freeze(tmp_path / "batch", made)
    # clips wide open, so that every step moves every token
    path = write_run(
        tmp_path / "run", [batch], toy_model, epochs=6, learning_rate=3e-3, clip_low=0.99, clip_high=100.0, dual_clip=0.0
    )
    assert main(["--config", str(path)]) == 0
    first = metrics_of(path)[0]
    assert (
        first["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
        and first["clip_fraction"] == 0.0
        and first["ess"] == pytest.approx(1.0, abs=1e-4)
    )

    manifest = CheckpointManifest.read(path.parent / "checkpoint")
    child = RunConfig.read(
        write_run(
            tmp_path / "child",
            [batch],
            toy_model,
            parent_id=manifest.checkpoint_id,
            parent_folder=str(path.parent / "checkpoint"),
        )
    )
    after = logprobs(Policy(child, model, Parent.read(child, model)))
    assert sum(after["good"]) > sum(before["good"]) + 0.1
    assert sum(after["bad"]) < sum(before["bad"]) - 0.1


def test_a_row_of_weight_zero_teaches_nothing(run_toml: Callable[..., Path], rows, tmp_path: Path):
    for row in rows:
        row["weight"] = 0.0
    path = run_toml()
    assert main(["--config", str(path)]) == 0
    assert all(line["grad_norm"] == 0 and line["loss"] == 0 for line in metrics_of(path))


def test_every_group_trains_once_an_epoch_in_even_steps(run_toml: Callable[..., Path], rows):
    from trainer.step import steps

    run = RunConfig.read(run_toml(groups_per_step=3))
    found = list(steps(run, read(run, BaseModel.read(run))[1]))
    assert [len({row.group_id for row in step}) for step in found] == [2, 2, 2, 2]  # not 3 and 1
    for epoch in (found[:2], found[2:]):
        assert sorted(row.row_hash for step in epoch for row in step) == sorted(row["row_hash"] for row in rows)


def test_it_works_where_dagster_is_absent(run_toml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    for name in ("dagster", "dagster_pipes"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv("DAGSTER_PIPES_CONTEXT", raising=False)
    assert main(["--config", str(run_toml())]) == 0


def test_one_file_alone_imports_dagster_pipes():
    importing = set()
    for path in (ROOT / "trainer").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            if any(name.split(".")[0].startswith("dagster") for name in names):
                importing.add(path.name)
    assert importing == {"pipes.py"}


def test_under_dagster_progress_and_result_are_reported(
    run_toml: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from dagster_pipes import DAGSTER_PIPES_CONTEXT_ENV_VAR, DAGSTER_PIPES_MESSAGES_ENV_VAR, encode_param

    context = {
        "asset_keys": ["training/run"],
        "code_version_by_asset_key": {"training/run": None},
        "provenance_by_asset_key": {"training/run": None},
        "partition_key": None,
        "partition_key_range": None,
        "partition_time_window": None,
        "run_id": "dagster run",
        "job_name": None,
        "retry_number": 0,
        "extras": {"epochs": 50, "config": "elsewhere"},  # nothing is read from here
    }
    messages = tmp_path / "messages"
    messages.touch()
    monkeypatch.setenv(DAGSTER_PIPES_CONTEXT_ENV_VAR, encode_param({"data": context}))
    monkeypatch.setenv(DAGSTER_PIPES_MESSAGES_ENV_VAR, encode_param({"path": str(messages)}))
    path = run_toml()
    assert main(["--config", str(path)]) == 0
    sent = [json.loads(line) for line in messages.read_text().splitlines()]
    assert sent[0]["method"] == "opened" and sent[-1]["method"] == "closed"
    logged = [message["params"]["message"] for message in sent if message["method"] == "log"]
    assert sum(line.startswith("step ") for line in logged) == 4
    (reported,) = [message["params"] for message in sent if message["method"] == "report_asset_materialization"]
    manifest = CheckpointManifest.read(path.parent / "checkpoint")
    assert reported["metadata"]["checkpoint_id"]["raw_value"] == manifest.checkpoint_id
    assert reported["metadata"]["reused"]["raw_value"] is False


@pytest.mark.parametrize(("most", "epochs"), [(0.05, 1), (0.0, 6)])
def test_a_policy_that_has_left_its_log_behind_begins_no_further_epoch(run_toml: Callable[..., Path], most: float, epochs: int):
    # with clips this tight nearly every token is clipped once the policy has moved at all
    path = run_toml(epochs=6, learning_rate=1e-2, clip_low=1e-3, clip_high=1e-3, max_clip_fraction=most)
    assert main(["--config", str(path)]) == 0
    found = metrics_of(path)
    assert len(found) == epochs * (found[0]["num_steps"] // 6)
    assert CheckpointManifest.read(path.parent / "checkpoint").num_steps == len(found)


def test_with_a_linear_decay_the_steps_shrink_to_nothing(run_toml: Callable[..., Path], rows, tmp_path: Path):
    from safetensors.numpy import load_file

    moved = {}
    for decay in ("none", "linear"):
        path = run_toml(epochs=8, learning_rate_decay=decay, out=str(tmp_path / decay))
        assert main(["--config", str(path)]) == 0
        tensors = load_file(tmp_path / decay / "adapter_model.safetensors")
        # B starts at 0: its size is how far the run went
        moved[decay] = sum(float(abs(tensor).sum()) for name, tensor in tensors.items() if "lora_B" in name)
    assert 0.3 < moved["linear"] / moved["none"] < 0.8
