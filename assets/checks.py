"""Asset checks for the invariants that can break in production; blocking, so that nothing behind a broken one runs."""

from collections.abc import Callable

import dagster as dg

from assets.resources import WorkspaceResource
from pipelines import invariants
from pipelines.invariants import Finding

_CHECKS: tuple[tuple[str, list[str], Callable[..., Finding], str], ...] = (
    (
        "every_record_in_one_place",
        ["trajectories", "trajectories"],
        invariants.every_record_in_one_place,
        "I1: each record is in exactly one of trajectories, duplicates, skipped.",
    ),
    (
        "one_task_one_context",
        ["groups", "groups"],
        invariants.one_task_one_context,
        "I4: a group holds one task under one context and one policy family; a trajectory is in one group.",
    ),
    (
        "only_sampled_tokens_train",
        ["batches", "batches"],
        invariants.only_sampled_tokens_train,
        "I7: masks mark what the policy sampled, each token once, neither nothing nor everything.",
    ),
    (
        "held_out_stays_out",
        ["batches", "batches"],
        invariants.held_out_stays_out,
        "I8: no held-out and no audit task is in a batch.",
    ),
    (
        "near_held_out_stays_out",
        ["batches", "batches"],
        invariants.near_held_out_stays_out,
        "I8: no near-copy of a held-out or audit task is in a batch, unless it had trained before that was known.",
    ),
    (
        "trained_once",
        ["batches", "batches"],
        invariants.trained_once,
        "I14: a trajectory is in one batch, unless it was frozen again on purpose.",
    ),
)


def build() -> list[dg.AssetChecksDefinition]:
    """All checks."""
    return [_check(*entry) for entry in _CHECKS]


def _check(name: str, asset: list[str], look: Callable[..., Finding], description: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(name=name, asset=dg.AssetKey(asset), blocking=True, description=description)
    def check(workspace: WorkspaceResource) -> dg.AssetCheckResult:
        finding = invariants.ask_tonight(workspace.open(), look)
        return dg.AssetCheckResult(
            passed=not finding.broken,
            metadata={
                "looked_at": finding.num_looked_at,
                "broken": finding.num_broken,
                "examples": finding.broken,
                **finding.counted,
            },
        )

    return check
