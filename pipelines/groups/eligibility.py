"""What a trajectory may be used for, from provenance alone: policy, token ids, version lag, split, faults."""

from __future__ import annotations

import pyarrow as pa

from pipelines import chain
from pipelines.groups.near_tasks import threshold_units
from pipelines.workspace import Workspace


def eligibility(workspace: Workspace) -> pa.Table:
    """One row per trajectory, sorted by its id.

    Columns: trajectory_id, eligible_for (one of contract.LANES), eligible_reason (one of reasons.ELIGIBLE_REASONS), split
    (null before `assign_splits` saw its task), day, task_key, context_key, policy_family, policy_version, lag (null off
    tonight's parent chain), and group_id, role, window, seal_reason, sealed_night (null where it is in no sealed group).
    """
    lags = chain.lags(workspace)
    known = [policy.policy_version for policy in chain.policies(workspace).values()]
    versions = pa.table(
        {
            "policy_version": pa.array(known, pa.string()),
            "lag": pa.array([lags.get(version) for version in known], pa.int32()),
        }
    )
    parameters = {
        "policy": workspace.config.policy.name,
        "max_policy_lag": workspace.config.groups.max_policy_lag,
        "near_threshold": threshold_units(workspace.config.groups),
    }
    return workspace.queries.run("groups/eligibility", parameters, tables={"versions": versions})
