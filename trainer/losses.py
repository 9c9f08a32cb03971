"""The losses: pure functions of tensors, one value per sampled token. Reads nothing, writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class TokenLoss(NamedTuple):
    """What a loss says about N sampled tokens."""

    loss: Tensor
    """float [N], differentiable in the new logprobs; not yet weighted or averaged."""
    ratio: Tensor
    """float [N], detached: new over behaviour probability."""
    clipped: Tensor
    """bool [N]: the token's gradient is cut off by a clip."""


def grpo(
    new_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float = 0.0,
) -> TokenLoss:
    """The clipped surrogate of PPO with the ratio taken per token against the policy that sampled it.

    All tensors float [N], natural logarithms; `advantages` is that of the token's trajectory. With r = exp(new - behaviour):
    loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), and with `dual_clip` c > 1 at most c |A| where A < 0, since
    there the first term has no bound of its own. The ratio is never multiplied up over a sequence: an error of 1% a token
    would be a factor of 2.7 after 100 tokens. The correction for the sampler is this ratio alone: weighting it once more
    (truncated importance sampling of the same ratio) would count it twice.

    GRPO, DeepSeekMath (arXiv 2402.03300) without the KL term; dual clip, arXiv 1912.09729; clip low/high, DAPO (arXiv 2503.14476).
    """
    import torch

    ratio = torch.exp(new_logprobs - behaviour_logprobs)
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_low, 1 + clip_high))
    held = ratio.detach()
    clipped = torch.where(advantages > 0, held > 1 + clip_high, held < 1 - clip_low) & (advantages != 0)
    if dual_clip:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
        clipped = clipped | ((advantages < 0) & (held > dual_clip))
    return TokenLoss(loss, held, clipped)


def step_loss(token_loss: Tensor, weights: Tensor, num_tokens: int) -> Tensor:
    """Sum of weighted token losses over the number of sampled tokens of the whole optimiser step (scalar).

    `weights` is float [N], the weight of each token's row. The mean is over tokens and not over answers, so that each token
    counts the same: a mean within each answer first would make a wrong token in a long answer cheaper than in a short one
    and so reward long wrong answers (DAPO, Dr. GRPO). The denominator is that of the step, so that the gradient does not
    depend on how the step was cut into micro-batches, and it does not hold the weights, so that a weight of 0.25 really
    teaches a quarter.
    """
    return (token_loss * weights).sum() / num_tokens


def shared_by_tokens(weights: Tensor, num_sampled: Tensor, mean_length: float) -> Tensor:
    """Weights per token under which every row counts the same, whatever its length (float [R]).

    `weights` float [R] of the rows, `num_sampled` int [R] their sampled tokens, `mean_length` the mean of those over the whole
    optimiser step. `step_loss` then is the mean over the step's rows of each row's mean over its tokens: 1/|o_i| of GRPO
    as published (arXiv 2402.03300, equation 3). Rows of the mean length keep their weight.
    """
    return weights * (mean_length / num_sampled)


def effective_share(ratio: Tensor) -> float:
    """Effective sample size of the importance weights as a share of N, in (0, 1]: (sum r)^2 / (N sum r^2).

    1 where the policy still is the one that sampled; near 0 where a few tokens carry the whole step.
    """
    wide = ratio.double()
    return float(wide.sum().square() / (wide.numel() * wide.square().sum()))
