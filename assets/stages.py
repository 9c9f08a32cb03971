"""The ten stages in their order, said once: asset groups, import contract and ARCHITECTURE.md are held against this."""

from __future__ import annotations

STAGES = (
    "landing",
    "trajectories",
    "groups",
    "rewards",
    "batches",
    "training",
    "checkpoints",
    "evaluation",
    "monitors",
    "promotion",
)
