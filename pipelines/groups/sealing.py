"""Sealed groups: trajectories of one task under one context, cut by sorted id inside tumbling windows.

A group is sealed when it is full, when its window is over, or when a night judges what is there; from then on it never
changes, and later siblings form a group of their own. So do the members of a group that became stale before any batch consumed
it: they are sealed anew as what they are now, and rewarded anew. A group that became stale never comes back, not even where a
later replay restores the very content of its members: they form a new group, which has another id, since what is said of the
old one (its rewards, and that they count no more) stays true of it.

A group with top-ups in it gets an anchor where there is one: a logged attempt of another model at the same task, shown to the
judge and to people, and counted nowhere. It is chosen when the group is sealed; a better one that is logged later changes nothing.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines import chain
from pipelines.doors.lake import Handle, Snapshot, conform
from pipelines.doors.queries import Only
from pipelines.groups.eligibility import eligibility
from pipelines.groups.near_tasks import clusters, near_counts
from pipelines.groups.night_windows import night_windows, recently_asked, sealed_at
from pipelines.groups.splits import assign_and_compare
from pipelines.groups.taken import taken
from pipelines.reports import Overview, Sealed, WantedTasks
from pipelines.schemas import GROUPS, SPLITS, STALE, TRAJECTORIES, WANTED
from pipelines.tasks import rules_of
from pipelines.workspace import Workspace
from trainer.contract import MIN_SPREAD, REWARD_UNIT

_WHEN_ALL_IS_OVER = "9999-12-31"
"""A night by which every window is over."""


def seal(workspace: Workspace, night: str, *, judged: bool) -> Sealed:
    """Seal what can be sealed, after giving new tasks their split.

    `night` (YYYY-MM-DD) decides which windows are over. Full groups are sealed always; with `judged` so is every open one that
    can teach something now (sql/groups/cuts.sql), which a night does before it scores them. Groups that were sealed on what is no longer so become
    stale first: one log that was written anew in place must not stop every night.
    """
    looked_at = night_windows(workspace, night)
    only = looked_at.only
    splits, entered = assign_and_compare(workspace, night)
    num_stale = _enter_stale(workspace, only)
    num_groups, rows, spent = 0, GROUPS.schema.empty_table(), pa.table({})

    def compute(snapshot: Snapshot) -> tuple[pa.Table, dict[str, int]]:
        nonlocal num_groups, rows, spent
        rows = GROUPS.schema.empty_table()
        pinned = {GROUPS.name: snapshot.handle, **_pinned(workspace, TRAJECTORIES.name)}
        spent = taken(workspace, night, pinned=pinned, only=only)
        cuts = _cuts(workspace, night, spent, judged=judged, pinned=pinned, only=only)
        num_groups = cuts.num_rows
        if num_groups:
            rows = _members(workspace, night, cuts, pinned, only)
        return rows, sealed_at(night, looked_at) if judged else {}

    commit = workspace.lake.append_computed(GROUPS.name, compute)
    in_force = {"task_rules": rules_of(workspace).fingerprint}
    named_otherwise = workspace.queries.run("groups/named_otherwise", in_force).column("num_trajectories")[0].as_py()
    masked = {"masked": workspace.config.groups.truncated == "masked"}
    waiting = workspace.queries.run("groups/waiting", masked, tables={"taken": spent}, only=only).column("num_waiting")[0].as_py()
    roles = _counts(rows, "role")
    return Sealed(
        groups=num_groups,
        members=roles.get("member", 0),
        anchors=roles.get("anchor", 0),
        waiting=waiting,
        stale=num_stale,
        splits=splits,
        **near_counts(workspace),
        other_making=entered.other_making,
        named_otherwise=named_otherwise,
        versions={GROUPS.name: commit.version, SPLITS.name: workspace.lake.version(SPLITS.name) or 0},
        why_nothing=None if num_groups else f"no trajectories can form a new group ({waiting} wait for siblings)",
    )


def _members(workspace: Workspace, night: str, cuts: pa.Table, pinned: dict[str, Handle], only: Only) -> pa.Table:
    """Rows of groups/groups for the cuts: members, and the anchors of those that hold top-ups."""
    found = workspace.queries.run("groups/members", {"night": night}, tables={"cuts": cuts}, pinned=pinned, only=only)
    rows = conform(found, GROUPS)
    if "top_up" not in found.column("purpose").unique().to_pylist():
        return rows
    parameters = {"night": night, "strict": workspace.config.groups.context == "strict", "pass_at": _pass_at(workspace)}
    anchors = workspace.queries.into(GROUPS.name, "groups/anchors", parameters, tables={"members": found}, pinned=pinned)
    return pa.concat_tables([rows, anchors])


def _enter_stale(workspace: Workspace, only: Only) -> int:
    """Enter sealed groups whose members are gone, or are under another task or context now, in groups/stale; how many."""
    groups = workspace.config.groups
    parameters = {"strict": groups.context == "strict", "window_days": groups.window_days}
    moved = workspace.queries.run("groups/moved", parameters, only=only)
    return workspace.lake.append_missing(STALE.name, moved.cast(STALE.schema)).num_rows if moved.num_rows else 0


def overview(workspace: Workspace) -> Overview:
    """What the log is worth now: sealed groups and those that a night would seal, by logged outcome; lanes and reasons."""
    cuts = _cuts(workspace, _WHEN_ALL_IS_OVER, taken(workspace, _WHEN_ALL_IS_OVER), judged=True, pinned={}, only={})
    counts = workspace.queries.run("groups/overview", {"pass_at": _pass_at(workspace)}, tables={"cuts": cuts}).to_pylist()[0]
    lanes = eligibility(workspace)
    return Overview(**counts, eligible_for=_counts(lanes, "eligible_for"), reasons=_counts(lanes, "eligible_reason"))


def want(workspace: Workspace, night: str) -> WantedTasks:
    """Write the tasks that more attempts would help, ranked, as the night's `groups/wanted`."""
    groups = workspace.config.groups
    parameters = {
        "night": night,
        "rubric_hash": workspace.rubric()[1],
        "min_spread": MIN_SPREAD,
        "pass_at": _pass_at(workspace),
        "strict": groups.context == "strict",
        "policy": workspace.config.policy.name,
        "policy_version": chain.champion(workspace).policy_version,
        "window_days": groups.window_days,
        "max_policy_lag": groups.max_policy_lag,
    }
    only = recently_asked(workspace).only
    eligible = eligibility(workspace, night, only=only)
    trained_on = eligible.filter(pc.field("split") == "train").column("task_key").unique().to_pylist()
    tables = {"eligible": eligible, "depths": depths(workspace), "clusters": clusters(workspace, trained_on)}
    rows = WANTED.schema.empty_table()

    def compute(snapshot: Snapshot) -> pa.Table:
        nonlocal rows
        rows = workspace.queries.into(WANTED.name, "groups/wanted", parameters, tables=tables, only=only)
        return rows

    commit = workspace.lake.replace_computed(WANTED.name, [night], compute)
    return WantedTasks(
        tasks=rows.num_rows,
        reasons=_counts(rows, "reason"),
        versions={WANTED.name: commit.version},
        why_nothing=None if rows.num_rows else "every task that may be trained on has a group of our own policy's with spread",
    )


def wanted_tasks(workspace: Workspace) -> list[dict[str, Any]]:
    """Rows of the newest night's `groups/wanted`, the most useful first; empty before the first night."""
    return workspace.queries.run("groups/wanted_tasks").to_pylist()


def violations(workspace: Workspace, *, only: Only | None = None) -> pa.Table:
    """Breaches of I4 and of sealing: (group_id, violation), empty where all is well. For the asset check and doctor."""
    groups = workspace.config.groups
    parameters = {"strict": groups.context == "strict", "max_policy_lag": groups.max_policy_lag}
    return workspace.queries.run("groups/violations", parameters, tables={"depths": depths(workspace)}, only=only)


def depths(workspace: Workspace) -> pa.Table:
    """(policy_version, depth): how many checkpoints lie between a version on tonight's parent chain and the base model."""
    lags = chain.lags(workspace)
    deepest = max(lags.values())
    return pa.table(
        {
            "policy_version": pa.array(list(lags), pa.string()),
            "depth": pa.array([deepest - lag for lag in lags.values()], pa.int32()),
        }
    )


def _cuts(workspace: Workspace, night: str, spent: pa.Table, *, judged: bool, pinned: dict[str, Handle], only: Only) -> pa.Table:
    """Groups that can be sealed: one row each, with group_id and its sorted trajectory_ids."""
    groups, rewards = workspace.config.groups, workspace.config.rewards
    kinds = set() if rewards.rule == "judge_only" else {verifier.kind for verifier in rewards.verifiers}
    parameters: dict[str, Any] = {
        "size": groups.size,
        "min_judged": groups.min_judged,
        "window_days": groups.window_days,
        "max_policy_lag": groups.max_policy_lag,
        "strict": groups.context == "strict",
        "masked": groups.truncated == "masked",
        "judged": judged,
        "outcomes": "logged_outcome" in kinds,
        "verified": bool(kinds - {"logged_outcome"}),
        "night": night,
    }
    tables = {"depths": depths(workspace), "taken": spent}
    cuts = workspace.queries.run("groups/cuts", parameters, tables=tables, pinned=pinned, only=only)
    # ids are keyed hashes, which SQL cannot make
    stale = set(workspace.lake.read(STALE.name, ["group_id"]).column("group_id").to_pylist())
    ids = []
    for task_key, context, run_key, members in zip(
        *(cuts.column(name).to_pylist() for name in ("task_key", "context", "run_key", "trajectory_ids")), strict=True
    ):
        times, group_id = 0, workspace.identity.group_id(task_key, context, members, run_key=run_key)
        while group_id in stale:  # the very same members were a group before
            times += 1
            group_id = workspace.identity.group_id(task_key, context, members, run_key=run_key, times=times)
        ids.append(group_id)
    return cuts.append_column("group_id", pa.array(ids, pa.string()))


def _pass_at(workspace: Workspace) -> int:
    return round(workspace.config.rewards.pass_at * REWARD_UNIT)


def _pinned(workspace: Workspace, name: str) -> dict[str, Handle]:
    handle = workspace.lake.handle(name)
    return {} if handle is None else {name: handle}


def _counts(rows: pa.Table, column: str) -> dict[str, int]:
    counted = rows.column(column).value_counts()
    return dict(sorted((entry["values"], entry["counts"]) for entry in counted.to_pylist()))
