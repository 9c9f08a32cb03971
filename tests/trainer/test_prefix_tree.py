"""Packed rows must be the separate rows in everything but cost: logprobs, gradients, and which token sees which."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.trainer.runs import write_run
from trainer.adapter import Policy
from trainer.batches import BaseModel, Row
from trainer.prefix_tree import plant
from trainer.run import RunConfig


def make(name: str, prompt: list[int], answer: list[int], unsampled: tuple[int, ...] = ()) -> Row:
    at = [len(prompt) + index for index in range(len(answer)) if index not in unsampled]
    return Row(name, name, "grp", tuple(prompt + answer), np.array(at), np.full(len(at), -5.5, np.float32), 1.0, 1.0)


def drawn_rows(seed: int = 0) -> list[Row]:
    draw = random.Random(seed)
    system = [draw.randrange(250) for _ in range(9)]
    rows = []
    for group in range(5):
        prompt = system + [draw.randrange(250) for _ in range(draw.randrange(3, 14))]
        for member in range(4):
            answer = [draw.randrange(3) for _ in range(draw.randrange(1, 7))]  # a small alphabet: answers begin alike
            rows.append(make(f"{group} {member}", prompt, answer))
    # another prompt altogether; the same row twice; one that continues another; a gap in the mask
    rows.append(make("alone", [7, 7, 7], [1, 2, 3]))
    rows.append(make("twice", list(rows[0].token_ids[:-1]), [rows[0].token_ids[-1]]))
    rows.append(make("continued", list(rows[1].token_ids), [5, 6]))
    rows.append(make("gap", list(rows[2].token_ids), [9, 8, 7, 6, 5], unsampled=(1, 2)))
    return rows


@pytest.fixture(scope="module")
def policy(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    run = RunConfig.read(write_run(tmp_path_factory.mktemp("run"), [Path("none")], toy_model))
    policy = Policy(run, BaseModel.read(run), None)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.normal_(std=0.2)  # a fresh adapter is the identity, and half of its gradients are zero
    return policy


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in policy.parameters.items():
        assert parameter.grad is not None
        found[name], parameter.grad = parameter.grad, None
    return found


@pytest.mark.parametrize("max_tokens", [1, 40, 100, 10_000])
def test_logprobs_and_gradients_equal_those_of_padded_rows(policy: Policy, max_tokens: int):
    rows = drawn_rows()
    coefficient = {
        row.row_hash: torch.randn(len(row.sampled_at), generator=torch.Generator().manual_seed(index))
        for index, row in enumerate(rows)
    }

    width = max(len(row.token_ids) for row in rows)
    ids = torch.tensor([list(row.token_ids) + [0] * (width - len(row.token_ids)) for row in rows])
    mask = torch.tensor([[1] * len(row.token_ids) + [0] * (width - len(row.token_ids)) for row in rows])
    logprobs = torch.log_softmax(policy.model(input_ids=ids, attention_mask=mask).logits, dim=-1)
    padded = {
        row.row_hash: logprobs[index, torch.from_numpy(row.sampled_at - 1), ids[index, torch.from_numpy(row.sampled_at)]]
        for index, row in enumerate(rows)
    }
    torch.stack([(padded[name] * coefficient[name]).sum() for name in padded]).sum().backward()
    expected = gradients(policy)

    seen = []
    for tree in plant(rows, max_tokens):
        packed = policy.logprobs(tree)
        (packed * torch.cat([coefficient[row.row_hash] for row in tree.rows])).sum().backward()
        for index, row in enumerate(tree.rows):
            of_row = packed.detach()[torch.from_numpy(tree.row_of) == index]
            torch.testing.assert_close(of_row, padded[row.row_hash].detach(), rtol=0, atol=1e-5)
            seen.append(row.row_hash)
    assert sorted(seen) == sorted(row.row_hash for row in rows)
    found = gradients(policy)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)


def test_every_distinct_prefix_is_held_once():
    rows = drawn_rows()
    (tree,) = plant(rows, 10_000)
    prefixes = {row.token_ids[:length] for row in rows for length in range(1, int(row.sampled_at[-1]) + 1)}
    assert len(tree.token_ids) == len(prefixes)
    # what a token sees, in order of depth, is its own prefix
    for index in range(len(tree.token_ids)):
        seen = np.flatnonzero(tree.visible[index])
        seen = seen[np.argsort(tree.positions[seen])]
        assert tree.positions[seen].tolist() == list(range(tree.positions[index] + 1))
        prefixes.remove(tuple(int(token) for token in tree.token_ids[seen]))
    assert not prefixes
    assert len(tree.targets) == sum(len(row.sampled_at) for row in rows)


def test_trees_keep_to_their_size_and_do_not_depend_on_the_order():
    rows = drawn_rows()
    longest = max(len(row.token_ids) for row in rows)
    trees = plant(rows, 60)
    assert len(trees) > 1
    assert all(len(tree.token_ids) <= max(60, longest) for tree in trees)
    for one, other in zip(trees, plant(list(reversed(rows)), 60), strict=True):
        assert one.rows == other.rows
        assert np.array_equal(one.visible, other.visible)
