"""Frozen linear layers on a CPU, through oneDNN: the same float32 products, two to three times as fast as the default.

PyTorch's own float32 products go to MKL, which leaves half of an AMD processor's vector units idle; oneDNN uses them.
PyTorch ships oneDNN but only sends reduced precision there, so the operator that its compiler emits is called directly.
"""

from __future__ import annotations

import platform
from typing import Any

import torch


def speed_up(model: torch.nn.Module) -> bool:
    """Send every frozen linear layer of a CPU model through oneDNN, in place; returns whether this machine can.

    Call it before adapters are attached, on layers whose weights get no gradient; writing into a weight in place is fine.
    Results differ from the default by float32 rounding (about 1e-5 in a logprob), and are the same from run to run with
    the same number of threads.
    """
    available = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not available or platform.machine() not in {"x86_64", "AMD64"}:
        return False
    for module in model.modules():
        if type(module) is torch.nn.Linear and module.weight.dtype is torch.float32 and module.weight.device.type == "cpu":
            module.__class__ = FrozenLinear  # a subclass without state of its own: weights are neither copied nor renamed
    return True


class FrozenLinear(torch.nn.Linear):
    """A linear layer whose weight never gets a gradient."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Product with the frozen weight, differentiable in `input` alone."""
        product = _FrozenProduct.apply(input, self.weight)
        return product if self.bias is None else product + self.bias


class _FrozenProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.weight = weight
        return _product(input, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _product(gradients[0], ctx.weight.t()), None


def _product(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    if input.dtype is not torch.float32:  # float64, to tell rounding from error: oneDNN has none
        return input @ weight.t()
    # the last three arguments fuse no activation into the product
    return torch.ops.mkldnn._linear_pointwise(input, weight, None, "none", [], "")
