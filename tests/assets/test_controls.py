"""The demo's two controls on the real model: shuffled advantages teach nothing, and a damaged adapter is held.

About six minutes on two free cores; part of `make drill`, which prints the numbers that README.md quotes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from pipelines import batches, chain, demo, groups, training, trajectories
from pipelines.doors.engine import hold
from pipelines.landing.land import land
from pipelines.nights import run_night
from pipelines.rewards.score import score
from pipelines.workspace import Workspace
from trainer.contract import CheckpointManifest, sha256_of

ADAPTER = "adapter_model.safetensors"

pytestmark = pytest.mark.drill


def test_shuffled_advantages_end_inside_the_interval_of_the_start(tmp_path: Path) -> None:
    told = demo.run_demo(nights=3, seed=0, folder=tmp_path / "workspace", control="shuffled")
    shown = {
        name: told[name] for name in ("audit_before", "audit_before_interval", "audit_after", "audit_after_interval", "champion")
    }
    print("\nshuffled:", json.dumps(shown))
    assert told["champion"] == "nightshift-order-desk@3", "three nights trained, each from the one before"
    assert [night["decision"] for night in told["nights"]] == ["hold"] * 3
    low, high = told["audit_before_interval"]
    assert low <= told["audit_after"] <= high


def test_a_damaged_adapter_is_held(tmp_path: Path) -> None:
    told = demo.run_demo(nights=1, seed=0, folder=tmp_path / "workspace")
    workspace = Workspace.open(told["workspace"])
    champion = chain.champion(workspace)
    assert champion.policy_version == "nightshift-order-desk@1"
    with hold(workspace) as server:
        night = demo.serve(workspace, server, 1, seed=0)
        land(workspace)
        trajectories.build(workspace)
        groups.seal(workspace, night, judged=True)
        score(workspace, night)
        batches.freeze(workspace, night)
        plan = training.plan(workspace, night)
        assert training.launch(workspace, plan) == 0 and plan.checkpoint is not None
        damage(plan.checkpoint)
        outcome = run_night(workspace, night)
    decision = outcome["reports"]["promotion/decision"]
    names = ("decision", "reason", "challenger_pass_rate", "champion_pass_rate", "lower_bound")
    print("\ndamaged:", json.dumps({name: decision[name] for name in names}))
    assert outcome["reports"]["checkpoints/checkpoint"]["policy_version"] == "nightshift-order-desk@2"
    assert (decision["decision"], decision["reason"]) == ("hold", "not_better")
    assert decision["challenger_pass_rate"] < decision["champion_pass_rate"]
    assert chain.champion(workspace) == champion


def damage(folder: Path) -> None:
    """Swap the outputs of every adapted layer about, and make the manifest say that this is what was trained."""
    from safetensors.numpy import load_file, save_file

    draws = np.random.default_rng(0)
    tensors = load_file(folder / ADAPTER)
    broken = {name: draws.permutation(tensor) if "lora_B" in name else tensor for name, tensor in tensors.items()}
    save_file(broken, folder / ADAPTER)
    content = json.loads((folder / "manifest.json").read_text())
    digest = sha256_of(folder / ADAPTER)
    content["files"][ADAPTER] = digest
    content["checkpoint_id"] = "ckp_" + hashlib.sha256((digest + content["run_id"]).encode()).hexdigest()[:32]
    CheckpointManifest(**content).write(folder)
