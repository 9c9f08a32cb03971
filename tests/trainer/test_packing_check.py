"""The check before a run tells an architecture that cannot be packed from rounding, and names what was looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.runs import write_run
from trainer.adapter import AGREEMENT, MOST_ROUNDING, Policy
from trainer.batches import BaseModel, Row
from trainer.contract import RunRefusedError
from trainer.run import RunConfig

PROMPT = list(range(40, 90))
ROWS = [
    Row(name, name, "grp", tuple(PROMPT + answer), np.arange(50, 50 + len(answer)), np.zeros(len(answer), np.float32), 1.0, 1.0)
    for name, answer in (("trj_a", [1, 2, 3]), ("trj_b", [1, 5, 6, 7]), ("trj_c", [9, 9, 9, 9, 9, 9]))
]


@pytest.fixture
def policy(toy_model: Path, tmp_path: Path) -> Policy:
    run = RunConfig.read(write_run(tmp_path, [Path("none")], toy_model))
    return Policy(run, BaseModel.read(run), None)


def test_a_plain_decoder_passes_with_its_rounding(policy: Policy):
    assert 0 <= policy.verify_packing(ROWS) < 1e-4


def test_a_state_that_runs_from_token_to_token_is_refused(policy: Policy):
    def carry(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output + output.cumsum(dim=1)

    policy.model.get_base_model().model.layers[0].mlp.register_forward_hook(carry)
    with pytest.raises(RunRefusedError, match=r"in float64 too \(rows of trj_a, trj_b\): its architecture"):
        policy.verify_packing(ROWS)


@pytest.mark.parametrize(("error", "refused"), [(0.004, False), (0.1, True)])
def test_what_float32_alone_gets_wrong_is_no_fault_of_the_architecture(policy: Policy, error: float, refused: bool):
    def inexact(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        if output.dtype is torch.float64:
            return output
        noise = error * torch.rand(output.shape, generator=torch.Generator().manual_seed(output.dim()))
        return output + noise

    policy.model.get_base_model().get_output_embeddings().register_forward_hook(inexact)
    before = {name: parameter.detach().clone() for name, parameter in policy.parameters.items()}
    if refused:
        with pytest.raises(RunRefusedError, match="float32 arithmetic moves a logprob"):
            policy.verify_packing(ROWS)
    else:
        assert AGREEMENT < policy.verify_packing(ROWS) <= MOST_ROUNDING
    for name, parameter in policy.parameters.items():
        assert parameter.dtype is torch.float32 and torch.equal(parameter, before[name])
