"""Who is champion, and the chain of parents behind it: read from the lake alone, so that every stage can ask.

The champion is the last row of `promotion/decisions` (I13); MLflow's alias only mirrors it. Where nothing was ever
promoted it is the base model without an adapter, version 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import UnknownReferenceError
from pipelines.schemas import CHECKPOINTS, DECISIONS
from pipelines.workspace import Workspace

BASE = "base"
"""checkpoint_id of the policy without an adapter."""


@dataclass(frozen=True)
class Policy:
    """One servable policy: the base model, or the base model with a checkpoint's adapter."""

    checkpoint_id: str
    """BASE for the base model."""
    version: int
    """Version of the registered model; 0 for the base model."""
    policy_version: str
    """`<policy>@<version>`, as the recorder logs it."""
    folder: Path | None
    """Checkpoint folder; None for the base model."""
    parent: str | None
    """checkpoint_id of the parent; None for the base model and for what was trained from it."""


def policies(workspace: Workspace) -> dict[str, Policy]:
    """All policies of the workspace by checkpoint_id, the base model included."""
    name = workspace.config.policy.name
    found = {BASE: Policy(BASE, 0, f"{name}@0", None, None)}
    rows = workspace.lake.read(CHECKPOINTS.name, columns=["checkpoint_id", "policy", "version", "parent", "path"])
    for row in rows.to_pylist():
        if row["policy"] == name:
            folder = workspace.path(row["path"])
            version = f"{name}@{row['version']}"
            found[row["checkpoint_id"]] = Policy(row["checkpoint_id"], row["version"], version, folder, row["parent"])
    return found


def champion(workspace: Workspace) -> Policy:
    """The policy that serves: the champion of the last decision, else the base model."""
    rows = workspace.lake.read(DECISIONS.name, columns=["policy", "number", "champion"]).to_pylist()
    decided = [row for row in rows if row["policy"] == workspace.config.policy.name]
    if not decided:
        return policies(workspace)[BASE]
    return policy(workspace, max(decided, key=lambda row: row["number"])["champion"])


def opponent(workspace: Workspace, checkpoint_id: str) -> Policy:
    """Whom a challenger is measured against: the champion, or the champion then where it was decided on before."""
    rows = workspace.lake.read(DECISIONS.name, columns=["policy", "number", "challenger", "measured_against"]).to_pylist()
    decided = [row for row in rows if row["policy"] == workspace.config.policy.name and row["challenger"] == checkpoint_id]
    if not decided:
        return champion(workspace)
    return policy(workspace, max(decided, key=lambda row: row["number"])["measured_against"])


def policy(workspace: Workspace, checkpoint_id: str) -> Policy:
    """One policy by its checkpoint_id."""
    try:
        return policies(workspace)[checkpoint_id]
    except KeyError:
        raise UnknownReferenceError(f"no checkpoint {checkpoint_id} in this lake; see `nightshift checkpoints`") from None


def start(workspace: Workspace) -> Policy:
    """The policy that tonight's run trains from, after `training.start`."""
    if workspace.config.training.start == "champion":
        return champion(workspace)
    return max(policies(workspace).values(), key=lambda policy: policy.version)


def lags(workspace: Workspace) -> dict[str, int]:
    """Lag by policy_version: how many trained checkpoints lie between it and `start`, on the parent chain.

    0 is the start itself. A version that is not in here is off the line and has no lag.
    """
    known, current, found = policies(workspace), start(workspace), {}
    while True:
        found[current.policy_version] = len(found)
        if current.checkpoint_id == BASE:
            return found
        current = known[current.parent or BASE]
