"""Reads: groups/groups, rewards/rewards, trajectories, batches/consumed. Writes: batches/<batch_id>/, batches/consumed, batches/lanes. Next: training.

Stage 5: freezes the rewarded groups that no batch has consumed into one batch per lane, and says of every trajectory
where it went and why. The order of the writes is what survives a kill: rows, manifest, the folder renamed into place
(named by its content, so that writing it twice is harmless), then consumption, then lanes. A batch counts from its rows
in batches/consumed on: a folder without them was never used, and the same groups freeze into it again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.batch_rows import SCHEMA, Member, RowRefusedError, sequences_of, table_of
from pipelines.doors.lake import Snapshot
from pipelines.errors import LakeConflictError
from pipelines.groups import alone, eligibility
from pipelines.reports import Frozen
from pipelines.rewards.score import settings_of, single_verdicts
from pipelines.schemas import CONSUMED, LANES
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
    again: bool


class _OvertakenError(Exception):
    """Another freezer consumed one of the groups meanwhile."""


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
    for _ in range(_MAX_TRIES):
        frozen: list[_Draft] = []
        try:
            for draft in _drafts(workspace, night, again=again):
                _write(workspace, night, draft)
                if _consume(workspace, night, draft):
                    frozen.append(draft)
        except _OvertakenError:
            continue
        return _report(workspace, night, frozen, _sort(workspace, night, rewrite=bool(frozen)))
    raise LakeConflictError(f"night {night}: other freezers won {_MAX_TRIES} times in a row; run the same command again")


def _parameters(workspace: Workspace, night: str) -> dict[str, Any]:
    return {
        "night": night,
        "rubric_hash": workspace.rubric()[1],
        "settings_key": settings_of(workspace),
        "min_spread": MIN_SPREAD,
    }


def _drafts(workspace: Workspace, night: str, *, again: bool) -> list[_Draft]:
    if again and any(row["again"] and row["night"] == night for row in workspace.queries.run("batches/pending").to_pylist()):
        return []  # frozen again before, and not trained yet: asking twice is not asking for two
    eligible, none = eligibility(workspace, night), pa.table({"trajectory_id": pa.array([], pa.string())})
    drafts: list[_Draft] = []
    for lane in workspace.config.training.lanes:
        parameters = {**_parameters(workspace, night), "lane": lane, "again": again}
        rows = workspace.queries.run("batches/candidates", parameters, tables={"eligible": eligible, "without": none})
        members = [
            member for _, group in groupby(rows.to_pylist(), key=lambda row: row["group_id"]) for member in _members(list(group))
        ]
        if members:
            from pipelines.doors.engine import base_identity

            base_model, tokenizer_hash = base_identity(workspace)
            table = table_of(
                members, identity=workspace.identity, lane=lane, base_model=base_model, tokenizer_hash=tokenizer_hash
            )
            generations = {member.group_id: member.generation for member in members}
            batch_id = root_of(table.column("row_hash").to_pylist())
            drafts.append(_Draft(batch_id, lane, table, generations, again))
    return drafts


def _members(group: list[dict[str, Any]]) -> list[Member]:
    """Those of one group that train, with advantages over exactly them; none where they have no spread."""
    sound = []
    for row in group:
        try:
            sound.append((row, sequences_of(row["calls"], row["num_sampled_tokens"])))
        except RowRefusedError:  # counted in the lanes, see _refused
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
    """Claim the groups; False where another freezer did so with the same batch.

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
        columns = {
            "group_id": group_ids,
            "rubric_hash": [rubric_hash] * len(group_ids),
            "batch_id": [draft.batch_id] * len(group_ids),
            "lane": [draft.lane] * len(group_ids),
            "again": [draft.again] * len(group_ids),
            "night": [night] * len(group_ids),
        }
        return pa.table(columns, schema=CONSUMED.schema)

    return workspace.lake.append_computed(CONSUMED.name, compute).num_rows > 0


def _sort(workspace: Workspace, night: str, *, rewrite: bool) -> list[dict[str, Any]]:
    """Write the night's lanes and count them; a night that has some and is past keeps them unless it froze something."""
    counts = workspace.queries.run("batches/lane_counts", {"night": night}).to_pylist()
    if counts and not rewrite and workspace.queries.run("batches/later_nights", {"night": night}).num_rows:
        return counts
    parameters = _parameters(workspace, night)

    def compute(snapshot: Snapshot) -> pa.Table:
        eligible, trained = eligibility(workspace, night), _trained(workspace, night)
        refused = _refused(workspace, night, eligible, trained)
        tables = {
            "eligible": eligible,
            "trained": trained,
            "refused": refused,
            "alone": alone(workspace, eligible),
            "singles": single_verdicts(workspace, eligible),
        }
        return workspace.queries.into(LANES.name, "batches/lanes", parameters, tables=tables)

    workspace.lake.replace_computed(LANES.name, [night], compute)
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


def _refused(workspace: Workspace, night: str, eligible: pa.Table, trained: pa.Table) -> pa.Table:
    """Members that would train but for their tokens, which make no rows (I7)."""
    refused: list[str] = []
    for lane in workspace.config.training.lanes:
        for again in (False, True):
            parameters = {**_parameters(workspace, night), "lane": lane, "again": again}
            tables = {"eligible": eligible, "without": trained.select(["trajectory_id"])}
            for row in workspace.queries.run("batches/candidates", parameters, tables=tables).to_pylist():
                try:
                    sequences_of(row["calls"], row["num_sampled_tokens"])
                except RowRefusedError:
                    refused.append(row["trajectory_id"])
    return pa.table({"trajectory_id": pa.array(sorted(set(refused)), pa.string())})


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
