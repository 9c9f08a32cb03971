"""Requests made of drawn words, and near-copies of them."""

from __future__ import annotations

import random

_DRAWS = random.Random("requests")
_WORDS = ["".join(_DRAWS.choices("abcdefghijklmnopqrstuvwxyz", k=_DRAWS.randint(2, 9))) for _ in range(3000)]


def request(seed: int, words: int = 100) -> str:
    """The same request for the same seed, and another for another."""
    return " ".join(random.Random(seed).choices(_WORDS, k=words))


def edited(text: str, number: int, seed: int = 0) -> str:
    """The text with so many of its words replaced, far from each other."""
    words = text.split()
    for place in range(number):
        words[(place * len(words)) // number + 1] = f"edit{seed}x{place}"
    return " ".join(words)
