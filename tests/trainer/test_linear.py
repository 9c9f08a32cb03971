from __future__ import annotations

import pytest
import torch

from trainer.linear import FrozenLinear, speed_up


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 33, 24), (7, 24), (2, 5, 24)])
def test_products_and_gradients_equal_the_default(bias: bool, shape: tuple[int, ...]):
    torch.manual_seed(0)
    plain = torch.nn.Linear(24, 40, bias=bias).requires_grad_(False)
    fast = torch.nn.Sequential(torch.nn.Linear(24, 40, bias=bias)).requires_grad_(False)
    fast[0].load_state_dict(plain.state_dict())
    if not speed_up(fast):
        pytest.skip("this machine's torch has no oneDNN for x86")
    assert type(fast[0]) is FrozenLinear
    one, other = torch.randn(shape).requires_grad_(), torch.empty(shape).requires_grad_()
    other.data.copy_(one.data)
    weight = torch.randn(*shape[:-1], 40)
    results = [layer(value) for layer, value in ((plain, one), (fast, other))]
    for result in results:
        (result * weight).sum().backward()
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other.grad, one.grad, rtol=1e-5, atol=1e-5)
