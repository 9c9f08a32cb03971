"""Trainer runs over the toy model: what a test changes in a batch or in run.toml is all that it has to say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.runs import freeze, make_row, write_run
from trainer.embedded import tokenizer_hash


@pytest.fixture
def rows(toy_model: Path) -> list[dict[str, Any]]:
    """Four groups of three: a prompt for each group, answers of different lengths that begin alike."""
    hashed = tokenizer_hash(toy_model)
    made = []
    for group in range(4):
        prompt = [10, 11, 12, *range(20 + group, 26 + 2 * group)]
        for member, (answer, advantage) in enumerate([([40, 41, 42], 1.0), ([40, 41, 50, 51, 52], -1.5), ([60], 0.5)]):
            made.append(
                make_row(
                    str(group), member, prompt, answer, advantage=advantage, tokenizer_hash=hashed, logprobs=[-5.5] * len(answer)
                )
            )
    return made


@pytest.fixture
def run_toml(tmp_path: Path, toy_model: Path, rows: list[dict[str, Any]]) -> Callable[..., Path]:
    """Freezes the rows into one batch and writes run.toml into tmp_path/run (or `folder`); keywords change its keys."""
    batch = tmp_path / "batch"

    def write(folder: str = "run", **changed: Any) -> Path:
        if not batch.exists():
            freeze(batch, rows)
        return write_run(tmp_path / folder, [batch], toy_model, **changed)

    return write
