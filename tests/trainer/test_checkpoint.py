from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trainer import checkpoint
from trainer.__main__ import main
from trainer.adapter import ADAPTER_FILE, CONFIG_FILE, OPTIMIZER_FILE, Parent, Policy
from trainer.batches import BaseModel, read
from trainer.contract import CheckpointManifest, CheckpointRefusedError, RunRefusedError, sha256_of
from trainer.prefix_tree import plant
from trainer.run import RunConfig


@pytest.fixture
def trained(run_toml: Callable[..., Path]) -> Path:
    """Folder of a finished checkpoint."""
    path = run_toml()
    assert main(["--config", str(path)]) == 0
    return path.parent / "checkpoint"


@pytest.fixture
def child(run_toml: Callable[..., Path], trained: Path) -> Callable[..., Path]:
    """run.toml of a run that starts from the finished checkpoint."""
    parent_id = CheckpointManifest.read(trained).checkpoint_id

    def write(**changed: object) -> Path:
        return run_toml("child", **{"run_id": "run_2", "parent_id": parent_id, "parent_folder": str(trained), **changed})

    return write


def test_the_manifest_says_what_is_there(trained: Path, rows):
    manifest = CheckpointManifest.read(trained)
    adapter = (trained / ADAPTER_FILE).read_bytes()
    assert manifest.checkpoint_id == "ckp_" + hashlib.sha256(adapter + b"run_1").hexdigest()[:32]
    assert (
        {path.name for path in trained.iterdir()}
        == {*manifest.files, "manifest.json"}
        == {ADAPTER_FILE, CONFIG_FILE, OPTIMIZER_FILE, "manifest.json"}
    )
    assert (manifest.run_id, manifest.parent, manifest.lane, manifest.loss, manifest.backend) == (
        "run_1",
        None,
        "grpo",
        "grpo",
        "peft",
    )
    assert manifest.num_steps == 4
    assert manifest.num_trained_tokens == 2 * sum(sum(row["sampled"]) for row in rows)
    assert set(manifest.versions) == {"torch", "transformers", "peft"}
    config = json.loads((trained / CONFIG_FILE).read_text())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 8, "toy")
    assert not list(trained.parent.glob("*.partial"))


def test_peft_reads_the_adapter_and_agrees_on_the_logprobs(trained: Path, child: Callable[..., Path], toy_model: Path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    run = RunConfig.read(child())
    model = BaseModel.read(run)
    ours = Policy(run, model, Parent.read(run, model))
    theirs = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(toy_model), trained).eval()
    base = AutoModelForCausalLM.from_pretrained(toy_model)
    with torch.no_grad():
        for tree in plant(read(run, model)[1], 1):  # one row a tree
            ids = torch.tensor([tree.rows[0].token_ids])
            at = torch.from_numpy(tree.rows[0].sampled_at)
            expected = torch.log_softmax(theirs(input_ids=ids).logits[0, at - 1], -1).gather(1, ids[0, at, None])[:, 0]
            unchanged = torch.log_softmax(base(input_ids=ids).logits[0, at - 1], -1).gather(1, ids[0, at, None])[:, 0]
            torch.testing.assert_close(ours.logprobs(tree), expected, rtol=0, atol=1e-5)
            assert (expected - unchanged).abs().max() > 1e-2  # it did learn something


def test_a_child_goes_on_from_adapter_and_optimiser_state(trained: Path, child: Callable[..., Path], capsys):
    path = child(learning_rate=1e-12)
    assert main(["--config", str(path)]) == 0
    assert "its optimiser state taken over" in capsys.readouterr().out
    manifest = CheckpointManifest.read(path.parent / "checkpoint")
    assert manifest.parent == CheckpointManifest.read(trained).checkpoint_id
    before, after = (load_file(folder / ADAPTER_FILE) for folder in (trained, path.parent / "checkpoint"))
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=1e-9)  # at this learning rate it stays where it was
    state = load_file(path.parent / "checkpoint" / OPTIMIZER_FILE)
    assert {float(tensor) for name, tensor in state.items() if name.startswith("step.")} == {8.0}


def test_a_parent_without_optimiser_state_starts_it_anew(trained: Path, child: Callable[..., Path], capsys):
    manifest = CheckpointManifest.read(trained)
    (trained / OPTIMIZER_FILE).unlink()
    files = {name: digest for name, digest in manifest.files.items() if name != OPTIMIZER_FILE}
    replace(manifest, files=files).write(trained)
    assert main(["--config", str(child())]) == 0
    assert "its optimiser state new" in capsys.readouterr().out


def refused(path: Path) -> str:
    run = RunConfig.read(path)
    with pytest.raises(CheckpointRefusedError) as problem:
        Parent.read(run, BaseModel.read(run))
    return str(problem.value)


def edit_config(folder: Path, **changed: object) -> None:
    config = json.loads((folder / CONFIG_FILE).read_text())
    (folder / CONFIG_FILE).write_text(json.dumps({**config, **changed}))
    # the file changed on purpose: the manifest has to follow
    content = json.loads((folder / "manifest.json").read_text())
    content["files"][CONFIG_FILE] = sha256_of(folder / CONFIG_FILE)
    (folder / "manifest.json").write_text(json.dumps(content))


def test_a_parent_that_can_execute_is_refused(trained: Path, child: Callable[..., Path]):
    path = child()
    (trained / "training_args.bin").write_bytes(b"\x80\x04.")
    assert "training_args.bin: pickled files are refused" in refused(path)
    (trained / "training_args.bin").unlink()
    edit_config(trained, auto_mapping={"parent_library": "os"})
    assert "unknown key 'auto_mapping'" in refused(path)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
        ({"use_dora": True}, "use_dora is True"),
        ({"target_modules": 3}, "cannot be read"),
    ],
)
def test_a_parent_of_another_kind_is_refused(trained: Path, child: Callable[..., Path], changed: dict, named: str):
    edit_config(trained, **changed)
    assert named in refused(child())


def test_a_parent_that_is_not_the_one_named_is_refused(trained: Path, child: Callable[..., Path], tmp_path: Path):
    assert "checkpoint_id is" in refused(child(parent_id="ckp_other"))
    assert "r is 4 and the run says 16" in refused(child(lora_rank=16))
    assert "never finished" in refused(child(parent_folder=str(tmp_path)))
    adapter = bytearray((trained / ADAPTER_FILE).read_bytes())
    adapter[-1] ^= 1
    (trained / ADAPTER_FILE).write_bytes(adapter)
    assert "sha256 differs" in refused(child())


def test_a_folder_that_holds_something_else_is_never_overwritten(trained: Path, run_toml: Callable[..., Path]):
    other = RunConfig.read(run_toml(run_id="run_other"))
    with pytest.raises(CheckpointRefusedError, match=r"holds the checkpoint of run run_1 .* give this run another folder"):
        checkpoint.finished(other)
    with pytest.raises(CheckpointRefusedError, match="config_other"):
        checkpoint.finished(RunConfig.read(run_toml(config_hash="config_other")))
    (trained / ADAPTER_FILE).write_bytes(b"torn")
    with pytest.raises(CheckpointRefusedError, match="to train the run again"):
        checkpoint.finished(RunConfig.read(run_toml()))


def test_two_trainers_never_share_a_folder(run_toml: Callable[..., Path], capsys):
    path = run_toml()
    with checkpoint.alone(RunConfig.read(path)):
        with pytest.raises(RunRefusedError, match="another trainer is at work"), checkpoint.alone(RunConfig.read(path)):
            pass
        assert main(["--config", str(path)]) == 3
    assert "another trainer is at work" in capsys.readouterr().err
    with checkpoint.alone(RunConfig.read(path)):
        assert not (path.parent / "checkpoint").exists()
