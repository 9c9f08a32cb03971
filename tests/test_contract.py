"""The contract: advantages against ART's oracle numbers and their invariances (I6), roots, imports without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.contract import MIN_SPREAD, advantages, root_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.9, 0.5, 0.1], [1.224741, 0.0, -1.224741]),
        ([1, 0, 0, 0], [1.732047, -0.577349, -0.577349, -0.577349]),
        ([1, 1, 0, 0], [0.999998, 0.999998, -0.999998, -0.999998]),
        ([0.81, 0.80, 0.79, 0.80], [1.414014, 0.0, -1.414014, 0.0]),
    ],
)
def test_agrees_with_art_up_to_its_epsilon(rewards: list[float], expected: list[float]) -> None:
    found = advantages([round(reward * 1_000_000) for reward in rewards])
    # ART adds 1e-6 to the deviation: at the smallest deviation here (.00707) that is 1.4e-4 of the value
    assert found == pytest.approx(expected, rel=2e-4, abs=1e-9)


@pytest.mark.parametrize("rewards", [[], [5], [7, 7, 7], [0, MIN_SPREAD], [999_999, 1_000_000, 1_000_000]])
def test_a_group_without_spread_teaches_nothing(rewards: list[int]) -> None:
    assert advantages(rewards) is None


rewards_of_a_group = st.lists(st.integers(-2_000_000, 2_000_000), min_size=2, max_size=16).filter(
    lambda rewards: max(rewards) - min(rewards) > MIN_SPREAD
)


@given(rewards_of_a_group, st.integers(-(10**9), 10**9), st.integers(1, 1000))
def test_shifting_and_scaling_changes_nothing(rewards: list[int], shift: int, scale: int) -> None:
    moved = advantages([scale * reward + shift for reward in rewards])
    assert moved == pytest.approx(advantages(rewards), rel=1e-12, abs=1e-12)


@given(rewards_of_a_group)
def test_mean_zero_deviation_one(rewards: list[int]) -> None:
    found = advantages(rewards)
    assert found is not None
    assert sum(found) == pytest.approx(0, abs=1e-9)
    assert sum(value * value for value in found) / len(found) == pytest.approx(1, rel=1e-9)


@given(st.lists(st.text("0123456789abcdef", min_size=4, max_size=8), unique=True, min_size=2))
def test_the_root_does_not_depend_on_order_but_on_every_row(hashes: list[str]) -> None:
    assert root_of(hashes) == root_of(reversed(hashes))
    assert root_of(hashes) != root_of(hashes[1:])


def test_imports_where_torch_and_everything_else_is_blocked() -> None:
    program = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "numpy", "pyarrow", "dagster", "pipelines", "orjson"}:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import trainer.contract
assert trainer.contract.advantages([0, 1_000_000]) == [-1.0, 1.0]
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_importing_the_trainer_package_imports_nothing_else() -> None:
    assert (ROOT / "trainer" / "__init__.py").read_text() == ""
