"""What a trajectory may be used for, from provenance alone: policy, token ids, version lag, split, faults."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from pipelines import chain
from pipelines.doors.queries import Only
from pipelines.groups.near_tasks import threshold_units
from pipelines.groups.night_windows import night_windows
from pipelines.workspace import Workspace
from trainer.contract import MANIFEST_FILE


def eligibility(workspace: Workspace, night: str | None = None, *, only: Only | None = None) -> pa.Table:
    """One row per trajectory, sorted by its id. `night` (YYYY-MM-DD) is what ages count from; None: the day of the newest attempt.
    `only`: of which windows (NightWindows.only); None: of all.

    Columns: trajectory_id, eligible_for (one of contract.LANES), eligible_reason (one of reasons.ELIGIBLE_REASONS), split
    (null before `assign_splits` saw its task), day, task_key, context_key, run_key, policy_family, policy_version, lag (null off
    tonight's parent chain), purpose, fault, masked (its cut off answer makes it no sibling), and group_id, role, window, seal_reason, sealed_night (null where it is in no sealed group).
    """
    lags = chain.lags(workspace)
    known = list(chain.policies(workspace).values())
    versions = pa.table(
        {
            "policy_version": pa.array([policy.policy_version for policy in known], pa.string()),
            "lag": pa.array([lags.get(policy.policy_version) for policy in known], pa.int32()),
            "held": pa.array([policy.folder is None or (policy.folder / MANIFEST_FILE).exists() for policy in known], pa.bool_()),
        }
    )
    groups = workspace.config.groups
    parameters = {
        "policy": workspace.config.policy.name,
        "max_policy_lag": groups.max_policy_lag,
        "max_age_days": groups.max_age_days,
        "night": night,
        "masked": groups.truncated == "masked",
        "near_threshold": threshold_units(groups),
    }
    return workspace.queries.run("groups/eligibility", parameters, tables={"versions": versions}, only=only)


def alone(workspace: Workspace, eligible: pa.Table, *, only: Only | None = None) -> pa.Table:
    """(trajectory_id, reason) of the attempts that are in no group, sorted by id; `eligible`: rows of `eligibility`, of whole
    windows."""
    groups = workspace.config.groups
    parameters = {"strict": groups.context == "strict", "window_days": groups.window_days}
    return workspace.queries.run("groups/alone", parameters, tables={"eligible": eligible}, only=only)


def reach(workspace: Workspace, night: str | None = None) -> dict[str, int]:
    """How many attempts in the windows that the night looks at (None: in all) reached a group (`grouped`), and how many did not,
    by reason; the most first."""
    only = {} if night is None else night_windows(workspace, night).only
    eligible = eligibility(workspace, night, only=only)
    counts = Counter(alone(workspace, eligible, only=only).column("reason").to_pylist())
    counts["grouped"] = eligible.num_rows - counts.total()
    return dict(sorted(counts.items(), key=lambda entry: (entry[0] != "grouped", -entry[1], entry[0])))
