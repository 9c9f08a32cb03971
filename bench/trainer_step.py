"""Seconds of training on the embedded model: rows packed as prefix trees, against right-padded rows and the same loss.

    python -m bench.trainer_step [--groups 16] [--members 8] [--tokens 256 512 1024] [--padded]

The batch looks like a night of examples/order_desk: one system line and one example turn for all, a ticket for each
group, answers of up to 12 tokens. Prints wall and CPU seconds per epoch, tokens through the model, and the peak of memory.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from trainer.batches import BaseModel, Row
from trainer.run import RunConfig

OPENINGS = ("Hello, I am still waiting for parcel", "Could you tell me where order", "My neighbour got the box of order")
ENDINGS = ("I have written to you twice now and nobody answers.", "Please reply today.", "The courier says it was delivered.")
ANSWERS = ("ORDER: {}<|im_end|>", "ORDER: {} and the customer is", "The order number is {} for", "{}<|im_end|>")


def night_rows(folder: Path, num_groups: int, num_members: int, seed: int = 0) -> list[Row]:
    """Rows like those of a night, with made-up answers, advantages of 1 or -1 and behaviour logprobs of -1."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    draw, rows = random.Random(seed), []
    for group in range(num_groups):
        number, other = draw.randint(10000, 99999), draw.randint(10000, 99999)
        rest = " ".join(draw.sample(ENDINGS, draw.randint(1, 3)))
        messages = [
            {"role": "system", "content": "Reply with only ORDER: and the order number."},
            {"role": "user", "content": "Parcel 48213 is late."},
            {"role": "assistant", "content": "ORDER: 48213"},
            {"role": "user", "content": f"{draw.choice(OPENINGS)} {number}, my customer number is {other}. {rest}"},
        ]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        for member in range(num_members):
            told = draw.choice([number, other, draw.randint(10000, 99999)])
            answer = tokenizer.encode(draw.choice(ANSWERS).format(told), add_special_tokens=False)[:12]
            sampled_at = np.arange(len(prompt), len(prompt) + len(answer))
            behaviour = np.full(len(answer), -1.0, np.float32)
            name = f"{group} {member}"
            rows.append(Row(name, name, str(group), (*prompt, *answer), sampled_at, behaviour, draw.choice([-1.0, 1.0]), 1.0))
    return rows


@dataclass
class Clock:
    """Wall and CPU seconds since it was made."""

    wall: float = field(default_factory=time.monotonic)
    work: float = field(default_factory=time.process_time)

    def __str__(self) -> str:
        return f"{time.monotonic() - self.wall:.1f} s ({time.process_time() - self.work:.1f} CPU-s)"


def padded_epoch(run: RunConfig, rows: list[Row], policy, optimizer) -> int:
    """One epoch the plain way, eight right-padded rows at once; returns the tokens that went through the model."""
    import torch

    from trainer import losses, step

    causal, num_tokens = policy.model.get_base_model(), 0
    for members in step.steps(run, rows):
        total = sum(len(row.sampled_at) for row in members)
        for first in range(0, len(members), 8):
            part = members[first : first + 8]
            width = max(len(row.token_ids) for row in part)
            ids = torch.tensor([[*row.token_ids, *[0] * (width - len(row.token_ids))] for row in part])
            mask = torch.tensor([[1] * len(row.token_ids) + [0] * (width - len(row.token_ids)) for row in part])
            at_row = torch.cat([torch.full((len(row.sampled_at),), index) for index, row in enumerate(part)])
            at = torch.cat([torch.from_numpy(row.sampled_at) for row in part])
            hidden = causal.get_decoder()(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            logprobs = torch.log_softmax(causal.lm_head(hidden[at_row, at - 1]), dim=-1)
            of_token = losses.grpo(
                logprobs.gather(1, ids[at_row, at][:, None])[:, 0],
                torch.cat([torch.from_numpy(row.behaviour_logprobs) for row in part]),
                torch.tensor([row.advantage for row in part])[at_row],
                clip_low=run.clip_low,
                clip_high=run.clip_high,
                dual_clip=run.dual_clip,
            )
            losses.step_loss(of_token.loss, torch.ones(len(at)), total).backward()
            num_tokens += ids.numel()
        optimizer.step()
    return num_tokens


def main() -> None:
    import torch

    from trainer import embedded, step
    from trainer.adapter import Optimizer, Policy

    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--tokens", type=int, nargs="*", default=[step.MAX_TREE_TOKENS], help="sizes of trees to try")
    parser.add_argument("--padded", action="store_true", help="also the plain way")
    options = parser.parse_args()

    folder = embedded.resolve("embedded")
    rows = night_rows(folder, options.groups, options.members)
    lengths = [len(row.token_ids) for row in rows]
    num_sampled = sum(len(row.sampled_at) for row in rows)
    print(f"{len(rows)} rows of {min(lengths)}-{max(lengths)} tokens, {num_sampled} sampled, {torch.get_num_threads()} threads")
    with tempfile.TemporaryDirectory() as temporary:
        run = RunConfig(
            run_id="bench",
            night="2026-11-20",
            lane="grpo",
            loss="grpo",
            backend="peft",
            batches=(),
            base_model="embedded",
            base_model_name=embedded.NAME,
            parent_id="",
            parent_folder="",
            out="checkpoint",
            learning_rate=4e-4,
            epochs=1,
            groups_per_step=4,
            clip_low=0.2,
            clip_high=0.2,
            dual_clip=3.0,
            max_grad_norm=1.0,
            weight_decay=0.0,
            lora_rank=16,
            lora_alpha=32,
            seed=0,
            shuffle_advantages=False,
            config_hash="bench",
            folder=Path(temporary),
        )
        clock = Clock()
        policy = Policy(run, BaseModel.read(run), None)
        policy.verify_packing(rows)
        optimizer = Optimizer(run, policy, None)
        print(f"loaded and verified in {clock}")
        for size in options.tokens:
            step.MAX_TREE_TOKENS = size
            trees = [tree for members in step.steps(run, rows) for tree in step.plant(members, size)]
            num_tokens = sum(len(tree.token_ids) for tree in trees)
            clock = Clock()
            step.train(run, rows, policy, optimizer, lambda metrics: None)
            print(f"trees of at most {size}: {clock} an epoch, {len(trees)} trees, {num_tokens} tokens", flush=True)
        if options.padded:
            clock = Clock()
            num_tokens = padded_epoch(run, rows, policy, optimizer)
            print(f"right-padded, 8 rows at once: {clock} an epoch, {num_tokens} tokens", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
