"""Seconds of training on the embedded model: rows packed as a prefix tree, against right-padded rows of the same loss.

    python -m bench.trainer_step [--groups 16] [--members 8] [--tokens 256 512 1024] [--padded]

The batch looks like a night of examples/order_desk: one system line and one example turn for all, a ticket for each
group, answers of up to 12 tokens. Prints seconds per epoch, tokens through the model, and the peak of memory.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from trainer.batches import BaseModel, Row
from trainer.embedded import NAME, resolve, tokenizer_hash


def night_rows(folder: Path, num_groups: int, num_members: int, seed: int = 0) -> list[Row]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    draw = random.Random(seed)
    openings = ["Hello, I am still waiting for parcel", "Could you tell me where order", "My neighbour got the box of order"]
    endings = ["I have written to you twice now and nobody answers.", "Please reply today.", "The courier says it was delivered."]
    rows = []
    for group in range(num_groups):
        number, other = draw.randint(10000, 99999), draw.randint(10000, 99999)
        ticket = f"{draw.choice(openings)} {number}, my customer number is {other}. " + " ".join(
            draw.sample(endings, draw.randint(1, 3))
        )
        messages = [
            {"role": "system", "content": "Reply with only ORDER: and the order number."},
            {"role": "user", "content": "Parcel 48213 is late."},
            {"role": "assistant", "content": "ORDER: 48213"},
            {"role": "user", "content": ticket},
        ]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        for member in range(num_members):
            told = draw.choice([number, other, draw.randint(10000, 99999)])
            text = draw.choice(
                ["ORDER: {}<|im_end|>", "ORDER: {} and the customer is", "The order number is {} for", "{}<|im_end|>"]
            )
            answer = tokenizer.encode(text.format(told), add_special_tokens=False)[:12]
            rows.append(
                Row(
                    row_hash=f"{group} {member}",
                    trajectory_id=f"{group} {member}",
                    group_id=str(group),
                    token_ids=tuple(prompt + answer),
                    sampled_at=np.arange(len(prompt), len(prompt) + len(answer)),
                    behaviour_logprobs=np.full(len(answer), -1.0, np.float32),
                    advantage=draw.choice([-1.0, 1.0]),
                    weight=1.0,
                )
            )
    return rows


def main() -> None:
    import torch

    from tests.trainer.runs import write_run
    from trainer import losses, step
    from trainer.adapter import Optimizer, Policy
    from trainer.run import RunConfig

    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--tokens", type=int, nargs="*", default=[step.MAX_TREE_TOKENS])
    parser.add_argument("--padded", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()

    folder = resolve("embedded")
    rows = night_rows(folder, options.groups, options.members)
    lengths = [len(row.token_ids) for row in rows]
    print(
        f"{len(rows)} rows of {min(lengths)}-{max(lengths)} tokens, {sum(len(row.sampled_at) for row in rows)} sampled, {torch.get_num_threads()} threads"
    )
    with tempfile.TemporaryDirectory() as temporary:
        path = write_run(
            Path(temporary),
            [Path("none")],
            folder,
            base_model_name=NAME,
            learning_rate=4e-4,
            lora_rank=16,
            lora_alpha=32,
            groups_per_step=4,
            epochs=1,
        )
        run = RunConfig.read(path)
        model = BaseModel(folder, NAME, tokenizer_hash(folder), 49152, 8192)
        started = time.monotonic()
        policy = Policy(run, model, None)
        policy.verify_packing(rows)
        print(f"loaded and verified in {time.monotonic() - started:.1f} s")
        optimizer = Optimizer(run, policy, None)
        for size in options.tokens:
            step.MAX_TREE_TOKENS = size
            trees = [tree for members in step._steps(run, rows) for tree in step.plant(members, size)]
            started = time.monotonic()
            if options.profile:
                with torch.profiler.profile() as profile:
                    step.train(run, rows, policy, optimizer, lambda metrics: None)
                print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=60))
            else:
                step.train(run, rows, policy, optimizer, lambda metrics: None)
            print(
                f"tree of at most {size}: {time.monotonic() - started:.1f} s an epoch, {len(trees)} trees, "
                f"{sum(len(tree.token_ids) for tree in trees)} tokens, {sum(len(tree.predictors) for tree in trees)} predicting",
                flush=True,
            )
        if options.padded:
            started, num_tokens = time.monotonic(), 0
            for members in step._steps(run, rows):
                total = sum(len(row.sampled_at) for row in members)
                for first in range(0, len(members), 8):
                    part = members[first : first + 8]
                    width = max(len(row.token_ids) for row in part)
                    ids, mask = torch.zeros(len(part), width, dtype=torch.int64), torch.zeros(len(part), width, dtype=torch.int64)
                    for index, row in enumerate(part):
                        ids[index, : len(row.token_ids)] = torch.tensor(row.token_ids)
                        mask[index, : len(row.token_ids)] = 1
                    at_row = torch.cat([torch.full((len(row.sampled_at),), index) for index, row in enumerate(part)])
                    at_position = torch.cat([torch.from_numpy(row.sampled_at) for row in part])
                    hidden = policy._causal.get_decoder()(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
                    logits = policy._causal.get_output_embeddings()(hidden[at_row, at_position - 1])
                    new = torch.log_softmax(logits, dim=-1).gather(1, ids[at_row, at_position][:, None])[:, 0]
                    of_token = losses.grpo(
                        new,
                        torch.cat([torch.from_numpy(row.behaviour_logprobs) for row in part]),
                        torch.tensor([row.advantage for row in part])[at_row],
                        clip_low=0.2,
                        clip_high=0.2,
                        dual_clip=3.0,
                    )
                    losses.step_loss(of_token.loss, torch.ones(len(new)), total).backward()
                    num_tokens += ids.numel()
                optimizer.step()
            print(f"right-padded, 8 rows at once: {time.monotonic() - started:.1f} s an epoch, {num_tokens} tokens", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
