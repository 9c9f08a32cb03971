from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.trainer.runs import write_run
from trainer.contract import RunRefusedError
from trainer.run import RunConfig


def test_a_whole_file_is_read_as_it_stands(tmp_path: Path):
    run = RunConfig.read(write_run(tmp_path, [Path("/batches/bat_1")], "embedded", learning_rate=1, out="deep/checkpoint"))
    assert run.learning_rate == 1.0 and type(run.learning_rate) is float
    assert run.batch_folders == (Path("/batches/bat_1"),)
    assert run.out_folder == tmp_path.resolve() / "deep" / "checkpoint"
    assert run.metrics_path == tmp_path.resolve() / "metrics.jsonl"
    assert run.parent_path is None


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"leave_out": "seed"}, "'seed' is missing"),
        ({"learning_rat": 1.0}, "unknown key 'learning_rat'"),
        ({"folder": "/elsewhere"}, "unknown key 'folder'"),
        ({"epochs": 1.5}, "epochs must be of type int"),
        ({"epochs": True}, "epochs must be of type int"),
        ({"epochs": 0}, "epochs = 0"),
        ({"shuffle_advantages": 1}, "shuffle_advantages must be of type bool"),
        ({"batches": "bat_1"}, "batches must be a list of strings"),
        ({"batches": []}, "batches"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
        ({"dual_clip": 0.5}, "dual_clip = 0.5"),
        ({"lane": "gold"}, "lane = 'gold'"),
        ({"lane": "sft"}, "loss 'grpo' trains lane grpo"),
        ({"loss": "ppo"}, "loss = 'ppo'"),
        ({"backend": "unsloth"}, "backend = 'unsloth'"),
        ({"parent_id": "ckp_1"}, "parent_folder"),
    ],
)
def test_what_does_not_hold_is_refused_by_name(tmp_path: Path, changed: dict, named: str):
    keys = {name: value for name, value in changed.items() if name != "folder"}
    path = write_run(tmp_path, [Path("bat_1")], "embedded", **keys)
    if "folder" in changed:  # the one field of RunConfig that the file may not set
        path.write_text(f'folder = "{changed["folder"]}"\n' + path.read_text())
    with pytest.raises(RunRefusedError) as refused:
        RunConfig.read(path)
    assert named in str(refused.value) and "\n" not in str(refused.value)


def test_a_missing_or_broken_file_is_refused(tmp_path: Path):
    with pytest.raises(RunRefusedError, match="does not exist"):
        RunConfig.read(tmp_path / "run.toml")
    (tmp_path / "run.toml").write_text("epochs = = 1")
    with pytest.raises(RunRefusedError, match="cannot be read"):
        RunConfig.read(tmp_path / "run.toml")


def test_refusing_needs_no_torch(tmp_path: Path, run_toml, rows, monkeypatch: pytest.MonkeyPatch, capsys):
    rows[5]["sampled"] = [False] * len(rows[5]["token_ids"])
    for name in ("torch", "transformers", "peft"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it raises
    from trainer.__main__ import main

    assert main(["--config", str(tmp_path / "absent.toml")]) == 3
    assert main(["--config", str(run_toml())]) == 3
    assert "row 5" in capsys.readouterr().err
