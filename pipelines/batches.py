"""Reads: groups/groups, rewards/rewards, trajectories, batches/consumed. Writes: batches/<batch_id>/, batches/consumed, batches/lanes. Next: training.

Stage 5: freezes the rewarded groups that no batch has consumed into one batch per lane, and says of every trajectory
where it went and why. The order of the writes is what survives a kill: rows, manifest, the folder renamed into place
(named by its content, so that writing it twice is harmless), then consumption, then lanes. A batch counts from its rows
in batches/consumed on: a folder without them was never used, and the same groups freeze into it again. These rows also name
the answers that trained, so that none trains again under another trajectory's id (groups/taken.py).
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from pipelines.batch_clusters import contenders
from pipelines.batch_rows import SCHEMA, Member, RowRefusedError, sequences_of, table_of
from pipelines.doors.lake import Snapshot
from pipelines.doors.queries import Only
from pipelines.errors import LakeConflictError
from pipelines.groups import alone, eligibility, taken
from pipelines.groups.night_windows import NightWindows, night_windows, sorted_at
from pipelines.reports import Frozen
from pipelines.rewards.score import settings_of, single_verdicts
from pipelines.schemas import CLUSTERS, CONSUMED, LANES
from pipelines.steps import reached
from pipelines.workspace import Workspace
from trainer.contract import MANIFEST_FILE, MIN_SPREAD, ROWS_FILE, BatchManifest, advantages, root_of, sha256_of

_MAX_TRIES = 20
_ABANDONED_SECONDS = 24 * 3600
"""A half-written folder this old belongs to a freezer that was killed."""


@dataclass(frozen=True)
class _Draft:
    """A batch before it is written."""

    batch_id: str
    lane: str
    rows: pa.Table
    generations: dict[str, int]
    """By group: how many batches had consumed it when this was drawn up."""
    windows: dict[str, str]
    """By group: its window."""
    names: dict[str, list[str]]
    """By group: what the answers of its members in the batch are known by, whatever trajectory holds them later (I14)."""
    shared_answers: dict[str, list[str]]
    """The same of answers whose records other attempts share; by those groups that have some."""
    drawn_at: int | None
    """Version of batches/consumed that it was drawn up on, None where there was no such table."""
    again: bool


class _OvertakenError(Exception):
    """Another freezer consumed one of the groups, or trained one of the answers, meanwhile."""


def pending(workspace: Workspace) -> list[str]:
    """Batches that are consumed and that no checkpoint was trained on, oldest night first."""
    return [row["batch_id"] for row in workspace.queries.run("batches/pending").to_pylist()]


def lane_counts(workspace: Workspace, night: str | None) -> dict[str, Any]:
    """Where the attempts of a night went, `lanes`: {lane, reason, trajectories}; None: the last night that froze.

    `nights` are all that froze, the newest last.
    """
    nights = workspace.lake.read(LANES.name, columns=["night"]).column("night").unique().to_pylist()
    night = night or max(nights, default=None)
    counts = workspace.queries.run("batches/lane_counts", {"night": night}).to_pylist() if night else []
    named = [{"lane": row["lane"], "reason": row["lane_reason"], "trajectories": row["num_trajectories"]} for row in counts]
    return {"night": night, "lanes": named, "nights": sorted(nights)}


def freeze(workspace: Workspace, night: str, *, again: bool = False) -> Frozen:
    """Stage 5 for a night (YYYY-MM-DD). `again`: freeze once more, marked, the groups that this night consumed before.

    Killed anywhere and run again it gives the same batches; of two at once, one freezes and the other finds it done.
    """
    frozen: list[_Draft] = []
    looked_at = night_windows(workspace, night)
    for _ in range(_MAX_TRIES):
        try:
            for draft in _drafts(workspace, night, looked_at.only, again=again):
                _write(workspace, night, draft)
                if _consume(workspace, night, draft):
                    frozen.append(draft)
        except _OvertakenError:
            continue
        return _report(workspace, night, frozen, _sort(workspace, night, looked_at, rewrite=bool(frozen)))
    raise LakeConflictError(f"night {night}: other freezers won {_MAX_TRIES} times in a row; run the same command again")


def _parameters(workspace: Workspace, night: str) -> dict[str, Any]:
    return {
        "night": night,
        "rubric_hash": workspace.rubric()[1],
        "settings_key": settings_of(workspace),
        "min_spread": MIN_SPREAD,
        "window_days": workspace.config.groups.window_days,
    }


def _drafts(workspace: Workspace, night: str, only: Only, *, again: bool) -> list[_Draft]:
    if again and any(row["again"] and row["night"] == night for row in workspace.queries.run("batches/pending").to_pylist()):
        return []  # frozen again before, and not trained yet: asking twice is not asking for two
    drawn_at = workspace.lake.version(CONSUMED.name)
    tables = {
        "eligible": eligibility(workspace, night, only=only),
        "taken": taken(workspace, night, only=only),
        "without": pa.table({"trajectory_id": pa.array([], pa.string())}),
    }
    drafts, spoken_for = list[_Draft](), set[str]()
    for lane in workspace.config.training.lanes:
        parameters = {**_parameters(workspace, night), "lane": lane, "again": again}
        found: dict[str, list[dict[str, Any]]] = {}
        for group_id, rows in groupby(
            workspace.queries.run("batches/candidates", parameters, tables=tables, only=only).to_pylist(),
            key=lambda row: row["group_id"],
        ):
            apart = _apart(list(rows), spoken_for)
            if _members(apart):
                found[group_id] = apart
        # what is frozen again was within the cap when it was frozen first
        chosen = found.keys() if again else contenders(workspace, parameters, tables["eligible"], only).taken(found)
        members, names, shared = list[Member](), dict[str, list[str]](), dict[str, list[str]]()
        windows = dict[str, str]()
        for group_id in [group_id for group_id in found if group_id in chosen]:
            apart = _apart(found[group_id], spoken_for)
            if of_group := _members(apart):
                members += of_group
                ids = {member.trajectory_id for member in of_group}
                trained = [row for row in apart if row["trajectory_id"] in ids]
                names[group_id] = sorted({name for row in trained for name in row["names"]})
                if of_shared := sorted({name for row in trained for name in row["shared_answers"] or ()}):
                    shared[group_id] = of_shared
                windows[group_id] = apart[0]["window"]
                spoken_for.update(_names(trained))
        if members:
            from pipelines.doors.engine import base_identity

            base_model, tokenizer_hash = base_identity(workspace)
            table = table_of(
                members, identity=workspace.identity, lane=lane, base_model=base_model, tokenizer_hash=tokenizer_hash
            )
            generations = {member.group_id: member.generation for member in members}
            batch_id = root_of(table.column("row_hash").to_pylist())
            drafts.append(_Draft(batch_id, lane, table, generations, windows, names, shared, drawn_at, again))
    return drafts


def _apart(group: list[dict[str, Any]], spoken_for: set[str]) -> list[dict[str, Any]]:
    """Those of one group whose answers no other trajectory trains tonight: one answer, told twice, trains once."""
    known, kept = set[str](), list[dict[str, Any]]()
    for row in group:
        names = _names([row])
        if known.isdisjoint(names) and spoken_for.isdisjoint(names):
            kept.append(row)
            known |= names
    return kept


def _names(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {name for row in rows for name in (*row["names"], *(row["shared_answers"] or ()))}


def _sound(rows: pa.Table) -> dict[str, list[Member]]:
    """The groups among candidates that have members to train, in the order of their ids."""
    of_groups = groupby(rows.to_pylist(), key=lambda row: row["group_id"])
    found = {group_id: _members(_apart(list(of_group), set())) for group_id, of_group in of_groups}
    return {group_id: members for group_id, members in found.items() if members}


def _members(group: list[dict[str, Any]]) -> list[Member]:
    """Those of one group that train, with advantages over exactly them; none where they have no spread."""
    sound = []
    for row in group:
        try:
            sound.append((row, sequences_of(row["calls"], row["num_sampled_tokens"])))
        except RowRefusedError:  # counted in the lanes, see _left_out
            continue
    found = advantages([row["reward"] for row, _ in sound])
    if found is None:
        return []
    return [
        Member(row["group_id"], row["trajectory_id"], row["policy_version"], advantage, row["num_batches"], sequences)
        for (row, sequences), advantage in zip(sound, found, strict=True)
    ]


def _write(workspace: Workspace, night: str, draft: _Draft) -> None:
    """Put the batch's folder in place; a folder that is there already holds the same rows."""
    target = workspace.batches / draft.batch_id
    if (target / MANIFEST_FILE).exists():
        return
    workspace.batches.mkdir(exist_ok=True)
    _sweep(workspace.batches)
    partial = workspace.batches / f".{draft.batch_id}.{os.getpid()}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    pq.write_table(draft.rows, partial / ROWS_FILE, compression="zstd")
    _sync(partial / ROWS_FILE)
    reached("batches:rows_written")
    rows = draft.rows
    BatchManifest(
        batch_id=draft.batch_id,
        lane=draft.lane,
        night=night,
        rubric_hash=workspace.rubric()[1],
        groups=sorted(draft.generations),
        policy_versions=sorted(set(rows.column("policy_version").to_pylist())),
        base_model=rows.column("base_model")[0].as_py(),
        tokenizer_hash=rows.column("tokenizer_hash")[0].as_py(),
        num_rows=rows.num_rows,
        num_trajectories=len(set(rows.column("trajectory_id").to_pylist())),
        num_sampled_tokens=_num_sampled(rows),
        row_hashes=rows.column("row_hash").to_pylist(),
        rows_sha256=sha256_of(partial / ROWS_FILE),
    ).write(partial)
    reached("batches:manifest_written")
    try:
        partial.rename(target)
    except OSError:
        if not (target / MANIFEST_FILE).exists():
            raise
        shutil.rmtree(partial)  # another freezer was first, with the same rows
    _sync(workspace.batches)
    reached("batches:published")


def _consume(workspace: Workspace, night: str, draft: _Draft) -> bool:
    """Claim the groups and their answers in one commit; False where another freezer did so with the same batch.

    _OvertakenError where another batch claimed one of them since the draft was drawn up.
    """
    rubric_hash = workspace.rubric()[1]
    group_ids = sorted(draft.generations)

    def compute(snapshot: Snapshot) -> pa.Table | None:
        held = snapshot.read(columns=["group_id", "batch_id"]).to_pylist()
        batches_of: dict[str, set[str]] = {}
        for row in held:
            batches_of.setdefault(row["group_id"], set()).add(row["batch_id"])
        if all(draft.batch_id in batches_of.get(group_id, ()) for group_id in group_ids):
            return None
        if any(len(batches_of.get(group_id, ())) != draft.generations[group_id] for group_id in group_ids):
            raise _OvertakenError
        if snapshot.handle.version() != draft.drawn_at and _named(snapshot, draft):
            raise _OvertakenError
        columns = {
            "group_id": group_ids,
            "rubric_hash": [rubric_hash] * len(group_ids),
            "batch_id": [draft.batch_id] * len(group_ids),
            "lane": [draft.lane] * len(group_ids),
            "again": [draft.again] * len(group_ids),
            "window": [draft.windows[group_id] for group_id in group_ids],
            "night": [night] * len(group_ids),
            "names": [draft.names[group_id] for group_id in group_ids],
            "shared_answers": [draft.shared_answers.get(group_id) for group_id in group_ids],
        }
        return pa.table(columns, schema=CONSUMED.schema)

    return workspace.lake.append_computed(CONSUMED.name, compute).num_rows > 0


def _named(snapshot: Snapshot, draft: _Draft) -> bool:
    """Whether another group trained an answer of the draft; what had done so before it was drawn up was no candidate."""
    others = snapshot.read(columns=["names", "shared_answers"], filter=~ds.field("group_id").isin(sorted(draft.generations)))
    for column, held in (("names", draft.names), ("shared_answers", draft.shared_answers)):
        wanted = {name for names in held.values() for name in names}
        for chunk in others.column(column).chunks:
            if not wanted.isdisjoint(chunk.flatten().to_pylist()):
                return True
    return False


def _sort(workspace: Workspace, night: str, looked_at: NightWindows, *, rewrite: bool) -> list[dict[str, Any]]:
    """Write the night's lanes and count them; a night that has some and is past keeps them unless it froze something."""
    counts = workspace.queries.run("batches/lane_counts", {"night": night}).to_pylist()
    if counts and not rewrite and workspace.queries.run("batches/later_nights", {"night": night}).num_rows:
        return counts
    parameters = _parameters(workspace, night)
    crowded: list[dict[str, Any]] = []

    only = looked_at.only

    def compute(snapshot: Snapshot) -> pa.Table:
        nonlocal crowded
        eligible, trained = eligibility(workspace, night, only=only), _trained(workspace, night)
        tables = {
            "eligible": eligible,
            "taken": taken(workspace, night, only=only),
            "trained": trained,
            "alone": alone(workspace, eligible, only=only),
            "singles": single_verdicts(workspace, eligible, only=only),
        }
        tables["refused"], tables["cluster_full"], crowded = _left_out(workspace, night, tables, only)
        return workspace.queries.into(LANES.name, "batches/lanes", parameters, tables=tables, only=only)

    workspace.lake.replace_computed(LANES.name, [night], compute, sequences=sorted_at(workspace, night, looked_at))
    if crowded or workspace.lake.version(CLUSTERS.name) is not None:
        made = pa.Table.from_pylist(crowded, schema=CLUSTERS.schema)
        workspace.lake.replace_computed(CLUSTERS.name, [night], lambda _: made)
    return workspace.queries.run("batches/lane_counts", {"night": night}).to_pylist()


def _trained(workspace: Workspace, night: str) -> pa.Table:
    """Trajectories of the batches that the night froze, read from the batches themselves."""
    found: dict[str, dict[str, Any]] = {}
    columns = ["trajectory_id", "lane", "advantage"]
    for batch in workspace.queries.run("batches/of_night", {"night": night}).to_pylist():
        folder = workspace.batches / batch["batch_id"]
        BatchManifest.read(folder).verify_rows(folder)
        for row in pq.read_table(folder / ROWS_FILE, columns=columns).to_pylist():
            found[row["trajectory_id"]] = {**row, "batch_id": batch["batch_id"]}
    schema = pa.schema([*(SCHEMA.field(name) for name in columns), pa.field("batch_id", pa.string())])
    return pa.Table.from_pylist(list(found.values()), schema=schema)


def _left_out(
    workspace: Workspace, night: str, given: Mapping[str, pa.Table], only: Only
) -> tuple[pa.Table, pa.Table, list[dict[str, Any]]]:
    """Members that would train but for something of stage 5's own, (trajectory_id) each, and the clusters that are full.

    Those whose tokens make no rows (I7); and those of groups that wait, since the night took enough of their cluster.
    """
    tables = {**given, "without": given["trained"].select(["trajectory_id"])}
    refused: set[str] = set()
    waiting: set[str] = set()
    crowded: list[dict[str, Any]] = []
    for lane in workspace.config.training.lanes:
        parameters = {**_parameters(workspace, night), "lane": lane}
        for again in (False, True):
            rows = workspace.queries.run("batches/candidates", {**parameters, "again": again}, tables=tables, only=only)
            for row in rows.to_pylist():
                try:
                    sequences_of(row["calls"], row["num_sampled_tokens"])
                except RowRefusedError:
                    refused.add(row["trajectory_id"])
            if again or not rows.num_rows:
                continue
            found, contending = _sound(rows), contenders(workspace, parameters, tables["eligible"], only)
            full = found.keys() - contending.taken(found)
            crowded += contending.full(full, night, lane)
            waiting |= {member.trajectory_id for group_id in full for member in found[group_id]}
    return _ids(refused), _ids(waiting), crowded


def _ids(trajectory_ids: set[str]) -> pa.Table:
    return pa.table({"trajectory_id": pa.array(sorted(trajectory_ids), pa.string())})


def _report(workspace: Workspace, night: str, drafts: list[_Draft], counts: list[dict[str, Any]]) -> Frozen:
    lanes, reasons = Counter[str](), Counter[str]()
    for row in counts:
        lanes[row["lane"]] += row["num_trajectories"]
        reasons[row["lane_reason"]] += row["num_trajectories"]
    waiting = pending(workspace)
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    nothing = f"no group is worth training tonight; trajectories by reason: {listed or 'there are no trajectories'}"
    tables = (CONSUMED.name, LANES.name)
    return Frozen(
        batch_ids=waiting,
        groups=sum(len(draft.generations) for draft in drafts),
        trajectories=sum(len(set(draft.rows.column("trajectory_id").to_pylist())) for draft in drafts),
        rows=sum(draft.rows.num_rows for draft in drafts),
        sampled_tokens=sum(_num_sampled(draft.rows) for draft in drafts),
        lanes=dict(sorted(lanes.items())),
        reasons=dict(sorted(reasons.items())),
        versions={table: version for table in tables if (version := workspace.lake.version(table)) is not None},
        why_nothing=None if drafts or waiting else nothing,
    )


def _num_sampled(rows: pa.Table) -> int:
    return sum(sum(mask) for mask in rows.column("sampled").to_pylist())


def _sweep(folder: Path) -> None:
    """Remove what killed freezers left half-written."""
    for partial in folder.glob(".*.partial"):
        if time.time() - partial.stat().st_mtime > _ABANDONED_SECONDS:
            shutil.rmtree(partial, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
