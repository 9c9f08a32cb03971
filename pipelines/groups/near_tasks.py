"""Near-copies among tasks: which train tasks are ones of held-out and audit tasks, and which are ones of each other.

Only what is new is compared: `enter` holds the requests that were not compared yet against those of the other splits, and
remembers them in groups/requests. What it finds stays in groups/near for ever, as a split does. No text is read: requests
are told by their signatures, and two signatures that were made in different ways are never compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.config import GroupsConfig
from pipelines.doors.lake import Snapshot, dataset_of
from pipelines.doors.queries import Only
from pipelines.groups.near import Index, components, near_pairs
from pipelines.schemas import NEAR, REQUESTS
from pipelines.signatures import Making, read
from pipelines.workspace import Workspace
from trainer.contract import REWARD_UNIT

OUT_OF_REACH = 2 * REWARD_UNIT
"""No similarity is so high: where `groups.near_threshold` is None."""

_PORTION = 1 << 18
"""Requests of one split that are read at once."""
_FOUND = pa.schema([("task_key", pa.string()), ("near_key", pa.string()), ("similarity", pa.int64())])


@dataclass(frozen=True)
class Entered:
    """What comparing new requests found."""

    near: int = 0
    """Train tasks that were found to be near-copies of held-out or audit tasks."""
    other_making: int = 0
    """Requests whose signatures were made under other settings: compared with nothing until a replay makes them anew."""


def threshold_units(groups: GroupsConfig) -> int:
    """`groups.near_threshold` in 1e-6; OUT_OF_REACH where nothing is compared."""
    return OUT_OF_REACH if groups.near_threshold is None else round(groups.near_threshold * REWARD_UNIT)


def enter(workspace: Workspace, night: str, *, only: Only | None = None) -> Entered:
    """Compare the requests that were not yet; `only`: of which windows (NightWindows.only), None: of all.

    Killed anywhere and run again it finds the same: requests count as compared once what was found of them is written.
    """
    if workspace.config.groups.near_threshold is None:
        return Entered()
    units = threshold_units(workspace.config.groups)
    fresh = workspace.queries.run("groups/fresh_requests", {"near_threshold": units}, only=only)
    _, places = read(fresh.column("request_signature"), Making.of(workspace.config.groups))
    left, fresh = fresh.num_rows - len(places), fresh.take(pa.array(places))
    if not fresh.num_rows:
        return Entered(other_making=left)
    found = _found(workspace, fresh)

    def near(snapshot: Snapshot) -> pa.Table:
        pinned = {NEAR.name: snapshot.handle}
        return workspace.queries.into(NEAR.name, "groups/found_near", {"night": night}, tables={"found": found}, pinned=pinned)

    commit = workspace.lake.append_computed(NEAR.name, near) if found.num_rows else None
    compared = fresh.append_column("near_threshold", pa.array([units] * fresh.num_rows, pa.int64()))
    compared = compared.append_column("night", pa.array([night] * fresh.num_rows, pa.string()))
    workspace.lake.append_missing(REQUESTS.name, compared.select(REQUESTS.schema.names).cast(REQUESTS.schema))
    return Entered(near=0 if commit is None else commit.num_rows, other_making=left)


def near_trained(workspace: Workspace, task_keys: Sequence[str]) -> set[str]:
    """Those of some new tasks that are near-copies of a task that has trained: to measure them would be to measure memory."""
    if workspace.config.groups.near_threshold is None or not task_keys:
        return set()
    logged = workspace.queries.run("groups/logged_requests", tables={"asked": _asked(task_keys)})
    pairs = _matches(workspace, logged, ["train"])
    if not pairs.num_rows:
        return set()
    asked = pairs.select(["task_key"])
    trained = workspace.queries.run("groups/trained_tasks", tables={"asked": asked}).column("task_key")
    return set(pairs.filter(ds.field("task_key").isin(trained.combine_chunks())).column("near_key").to_pylist())


def clusters(workspace: Workspace, task_keys: Sequence[str]) -> pa.Table:
    """(task_key, cluster): tasks that are near-copies of each other, directly or through others of `task_keys`, have one cluster.

    It is named by the smallest task_key in it, and does not depend on the order in which the tasks are given.
    """
    keys = sorted(set(task_keys))
    labels = np.arange(len(keys))
    groups = workspace.config.groups
    if groups.near_threshold is not None and len(keys) > 1:
        known = workspace.queries.run("groups/known_requests", tables={"asked": _asked(keys)})
        table, places = read(known.column("request_signature"), Making.of(groups))
        number = {key: place for place, key in enumerate(keys)}
        tasks = np.array([number[key] for key in known.column("task_key").take(pa.array(places)).to_pylist()], np.int64)
        ones, others = near_pairs(table, groups.near_threshold)
        labels = components(len(keys), tasks[ones], tasks[others])
    return pa.table(
        {"task_key": pa.array(keys, pa.string()), "cluster": pa.array([keys[place] for place in labels], pa.string())}
    )


def near_counts(workspace: Workspace) -> dict[str, int]:
    """`near_held_out`: train tasks that are near-copies of tasks of another split; `near_trained`: those that had trained before."""
    parameters = {"near_threshold": threshold_units(workspace.config.groups)}
    return workspace.queries.run("groups/near_counts", parameters).to_pylist()[0]


def _found(workspace: Workspace, fresh: pa.Table) -> pa.Table:
    """Pairs of which one is new: a train task and a near-copy of it in another split."""
    is_train = np.array([split == "train" for split in fresh.column("split").to_pylist()], np.bool_)
    train, held = fresh.filter(pa.array(is_train)), fresh.filter(pa.array(~is_train))
    before = _matches(workspace, train, ["held_out", "audit"])
    turned = before.rename_columns(["near_key", "task_key", "similarity"]).select(_FOUND.names)
    now = _held_against(workspace, held, iter([train]))
    return pa.concat_tables([turned, now, _matches(workspace, held, ["train"])])


def _matches(workspace: Workspace, asked: pa.Table, splits: Sequence[str]) -> pa.Table:
    """_FOUND: known requests of `splits` (`task_key`) that are near-copies of asked ones (`near_key`)."""
    return _held_against(workspace, asked, _known(workspace, splits) if asked.num_rows else iter(()))


def _held_against(workspace: Workspace, asked: pa.Table, portions: Iterator[pa.Table]) -> pa.Table:
    making, threshold = Making.of(workspace.config.groups), workspace.config.groups.near_threshold
    assert threshold is not None
    parts = [_FOUND.empty_table()]
    table, places = read(asked.column("request_signature"), making)
    if len(places):
        index, keys = Index(table, threshold), asked.column("task_key").take(pa.array(places))
        for portion in portions:
            others, standing = read(portion.column("request_signature"), making)
            here, there, similarities = index.matches(others)
            columns = {
                "task_key": portion.column("task_key").take(pa.array(standing[there])),
                "near_key": keys.take(pa.array(here)),
                "similarity": np.rint(similarities * REWARD_UNIT).astype(np.int64),
            }
            parts.append(pa.table(columns, schema=_FOUND))
    return pa.concat_tables(parts)


def _known(workspace: Workspace, splits: Sequence[str]) -> Iterator[pa.Table]:
    """Compared requests of some splits, a portion after the other, so that memory does not grow with history."""
    handle = workspace.lake.handle(REQUESTS.name)
    if handle is None:
        return
    columns = ["task_key", "request_signature"]
    for batch in dataset_of(handle).to_batches(columns=columns, filter=ds.field("split").isin(list(splits)), batch_size=_PORTION):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])


def _asked(task_keys: Sequence[str]) -> pa.Table:
    return pa.table({"task_key": pa.array(sorted(set(task_keys)), pa.string())})
