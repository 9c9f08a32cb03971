"""The loop: groups in a seeded order, a few per optimiser step, one line of metrics.jsonl per step.

On a CPU the same run.toml gives the same adapter, byte for byte (same machine, same number of threads).
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import fmean

import torch

from trainer import losses
from trainer.adapter import Optimizer, Policy
from trainer.batches import Row
from trainer.contract import EXIT_DIVERGED, NightshiftError
from trainer.prefix_tree import PrefixTree, plant
from trainer.run import RunConfig

MAX_TREE_TOKENS = 512
"""Tokens that go through the model at once. More saves little, since attention grows with the square."""


class DivergedError(NightshiftError):
    """The loss or a gradient is not a number; nothing was written, the rows are named."""

    exit_code = EXIT_DIVERGED


@dataclass(frozen=True)
class StepMetrics:
    """One line of metrics.jsonl: one optimiser step. Ratios are new over behaviour probability, per sampled token."""

    step: int
    """From 1."""
    num_steps: int
    """Of the whole run."""
    loss: float
    clip_fraction: float
    """Share of the step's sampled tokens whose gradient is cut off by a clip."""
    ratio_mean: float
    ratio_max: float
    ess: float
    """Effective sample size as a share, `losses.effective_share`."""
    grad_norm: float
    """Before clipping."""
    num_tokens: int
    """Sampled tokens that it learned from."""
    seconds: float


@dataclass(frozen=True)
class Trained:
    """What the loop did."""

    num_steps: int
    num_tokens: int
    """Sampled tokens, counted once per epoch."""
    metrics: dict[str, float]
    """Means over the steps, of `ratio_max` the largest."""


def train(
    run: RunConfig, rows: list[Row], policy: Policy, optimizer: Optimizer, report: Callable[[StepMetrics], None]
) -> Trained:
    """Train the policy in place on the rows; writes metrics.jsonl as it goes. DivergedError names the rows that broke it."""
    planned = list(steps(run, rows))
    done: list[StepMetrics] = []
    with run.metrics_path.open("w", encoding="utf-8", buffering=1) as stream:  # line-buffered: others follow the file
        num_steps = len(planned) // run.epochs
        for number, members in enumerate(planned, start=1):
            if number % num_steps == 1 % num_steps and number > 1 and _drifted(run, done[-num_steps:]):
                break
            metrics = _step(run, members, policy, optimizer, number, len(planned))
            stream.write(json.dumps(asdict(metrics)) + "\n")
            report(metrics)
            done.append(metrics)
    names = ("loss", "clip_fraction", "ratio_mean", "ess", "grad_norm", "seconds")
    means = {name: fmean(getattr(metrics, name) for metrics in done) for name in names}
    means["ratio_max"] = max(metrics.ratio_max for metrics in done)
    return Trained(len(done), sum(metrics.num_tokens for metrics in done), means)


def _drifted(run: RunConfig, epoch: list[StepMetrics]) -> bool:
    """Whether the epoch that just ended moved the policy so far from the sampler that the batch has nothing more to teach."""
    return bool(run.max_clip_fraction) and fmean(metrics.clip_fraction for metrics in epoch) > run.max_clip_fraction


def steps(run: RunConfig, rows: list[Row]) -> Iterator[list[Row]]:
    """The rows of each optimiser step of the run: whole groups, each once an epoch, in an order drawn from the seed."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group_id, []).append(row)
    num_steps = math.ceil(len(groups) / run.groups_per_step)
    for epoch in range(run.epochs):
        order = sorted(groups)
        random.Random(f"{run.seed} {epoch}").shuffle(order)
        for index in range(num_steps):
            # dealt out evenly: a last step of one group alone would let that group move the weights as far as all others
            yield [row for group_id in order[index::num_steps] for row in groups[group_id]]


def _step(run: RunConfig, rows: list[Row], policy: Policy, optimizer: Optimizer, number: int, num_steps: int) -> StepMetrics:
    started = time.monotonic()
    num_tokens = sum(len(row.sampled_at) for row in rows)
    total, seen = 0.0, list[losses.TokenLoss]()
    for tree in plant(rows, MAX_TREE_TOKENS):
        of_token, weights = _tree_loss(run, tree, policy, num_tokens / len(rows))
        loss = losses.step_loss(of_token.loss, weights, num_tokens)
        value = float(loss.detach())
        if not math.isfinite(value):
            broken = ~torch.isfinite(of_token.loss.detach() * weights)
            indices = torch.from_numpy(tree.row_of)[broken].unique().tolist()
            raise _diverged(f"the loss is {value}", number, [tree.rows[index] for index in indices])
        loss.backward()
        total += value
        seen.append(of_token)
    norm = optimizer.step(1 - (number - 1) / num_steps if run.learning_rate_decay == "linear" else 1.0)
    if not math.isfinite(norm):
        raise _diverged(f"the gradient's norm is {norm}", number, rows)
    ratio = torch.cat([of_token.ratio for of_token in seen])
    clipped = torch.cat([of_token.clipped for of_token in seen])
    return StepMetrics(
        step=number,
        num_steps=num_steps,
        loss=total,
        clip_fraction=float(clipped.double().mean()),
        ratio_mean=float(ratio.double().mean()),
        ratio_max=float(ratio.max()),
        ess=losses.effective_share(ratio),
        grad_norm=norm,
        num_tokens=num_tokens,
        seconds=round(time.monotonic() - started, 3),
    )


def _tree_loss(run: RunConfig, tree: PrefixTree, policy: Policy, mean_length: float) -> tuple[losses.TokenLoss, torch.Tensor]:
    row_of = torch.from_numpy(tree.row_of)
    behaviour = torch.cat([torch.from_numpy(row.behaviour_logprobs) for row in tree.rows])
    of_token = losses.grpo(
        policy.logprobs(tree),
        behaviour,
        torch.tensor([row.advantage for row in tree.rows], dtype=torch.float32)[row_of],
        clip_low=run.clip_low,
        clip_high=run.clip_high,
        dual_clip=run.dual_clip,
    )
    weights = torch.tensor([row.weight for row in tree.rows], dtype=torch.float32)
    if run.loss_mean == "answer":
        weights = losses.shared_by_tokens(weights, torch.tensor([len(row.sampled_at) for row in tree.rows]), mean_length)
    return of_token, weights[row_of]


def _diverged(what: str, step: int, rows: list[Row]) -> DivergedError:
    hashes = sorted(row.row_hash for row in rows)
    shown = ", ".join(hashes[:4]) + (f" and {len(hashes) - 4} more" if len(hashes) > 4 else "")
    return DivergedError(
        f"step {step}: {what}, in rows {shown}; no checkpoint was written. Lower training.learning_rate, or look at these rows",
        rows=hashes,
    )
