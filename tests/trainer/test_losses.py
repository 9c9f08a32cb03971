from __future__ import annotations

import pytest
import torch

from trainer.losses import effective_share, grpo, shared_by_tokens, step_loss

NEW, OLD = [-1.0, -0.5, -2.0], [-1.0, -2.5, -0.5]


def gradient(advantage: float, **changed: float) -> list[float]:
    new = torch.tensor(NEW, requires_grad=True)
    settings = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0, **changed}
    of_token = grpo(new, torch.tensor(OLD), torch.full((3,), advantage), **settings)
    step_loss(of_token.loss, torch.ones(3), 3).backward()
    assert new.grad is not None
    return new.grad.tolist()


@pytest.mark.parametrize(
    ("advantage", "expected"),
    # computed by an independent trainer (ART 0.5.18) for the same three tokens
    [(1.0, [-0.333333, 0.0, -0.074377]), (-1.0, [0.333333, 2.463018, 0.0])],
)
def test_gradients_equal_those_of_another_trainer(advantage: float, expected: list[float]):
    assert gradient(advantage) == pytest.approx(expected, abs=1e-6)


def test_dual_clip_bounds_negative_advantages_alone():
    assert gradient(-1.0, dual_clip=3.0) == pytest.approx([0.333333, 0.0, 0.0], abs=1e-6)
    assert gradient(-1.0, dual_clip=8.0) == pytest.approx(gradient(-1.0), abs=1e-6)
    assert gradient(1.0, dual_clip=3.0) == pytest.approx(gradient(1.0), abs=1e-6)


def test_low_and_high_clip_are_separate():
    assert gradient(1.0, clip_high=7.0)[1] == pytest.approx(-7.389056 / 3, abs=1e-5)
    assert gradient(-1.0, clip_low=0.9)[2] == pytest.approx(0.22313 / 3, abs=1e-5)


def test_clipped_marks_exactly_the_tokens_without_gradient():
    for advantage in (1.0, -1.0):
        for dual_clip in (0.0, 3.0):
            of_token = grpo(
                torch.tensor(NEW),
                torch.tensor(OLD),
                torch.full((3,), advantage),
                clip_low=0.2,
                clip_high=0.2,
                dual_clip=dual_clip,
            )
            assert of_token.clipped.tolist() == [value == 0 for value in gradient(advantage, dual_clip=dual_clip)]
            assert of_token.ratio.tolist() == pytest.approx([1.0, 7.389056, 0.22313], abs=1e-5)


def test_gradients_equal_finite_differences():
    generator = torch.Generator().manual_seed(3)
    new = (torch.randn(200, generator=generator, dtype=torch.float64) - 2).requires_grad_()
    old = new.detach() + torch.randn(200, generator=generator, dtype=torch.float64)
    advantages = torch.randn(200, generator=generator, dtype=torch.float64)
    weights = torch.rand(200, generator=generator, dtype=torch.float64)

    def loss(values: torch.Tensor) -> torch.Tensor:
        of_token = grpo(values, old, advantages, clip_low=0.2, clip_high=0.28, dual_clip=3.0)
        return step_loss(of_token.loss, weights, 200)

    loss(new).backward()
    assert new.grad is not None
    for index in range(200):
        shift = torch.zeros(200, dtype=torch.float64)
        shift[index] = 1e-6
        with torch.no_grad():
            slope = float((loss(new + shift) - loss(new - shift)) / 2e-6)
        assert slope == pytest.approx(float(new.grad[index]), abs=1e-8)


def test_a_weight_scales_what_a_row_teaches_and_no_other():
    token_loss = torch.tensor([1.0, 2.0, 3.0])
    assert float(step_loss(token_loss, torch.tensor([1.0, 1.0, 1.0]), 3)) == pytest.approx(2.0)
    assert float(step_loss(token_loss, torch.tensor([0.25, 1.0, 1.0]), 3)) == pytest.approx(5.25 / 3)
    assert float(step_loss(token_loss, torch.tensor([0.25, 0.25, 0.25]), 3)) == pytest.approx(0.5)


def test_effective_share():
    assert effective_share(torch.ones(7)) == pytest.approx(1.0)
    assert effective_share(torch.tensor([1.0] + [1e-9] * 9)) == pytest.approx(0.1)


def test_under_the_mean_over_answers_each_row_counts_the_same_whatever_its_length():
    lengths = torch.tensor([1, 4, 10])
    row_of = torch.repeat_interleave(torch.arange(3), lengths)
    token_loss = torch.tensor([3.0, 5.0, -2.0])[row_of]  # the same in each token of a row
    weights = shared_by_tokens(torch.tensor([1.0, 1.0, 0.5]), lengths, 15 / 3)[row_of]
    assert float(step_loss(token_loss, weights, 15)) == pytest.approx((3.0 + 5.0 - 1.0) / 3)
    even = torch.tensor([1.0, 0.25, 2.0])
    assert torch.allclose(shared_by_tokens(even, torch.tensor([7, 7, 7]), 7.0), even)
