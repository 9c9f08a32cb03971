"""Two-way lineage at row level: checkpoint <-> batch <-> group <-> trajectory <-> file and line (I9).

Read from the lake and the frozen batches alone: it needs neither Dagster nor MLflow, and survives the loss of both.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines import chain
from pipelines.errors import LakeError, UnknownReferenceError
from pipelines.groups import alone, eligibility
from pipelines.log_lines import pieces_at
from pipelines.references import whole_id
from pipelines.schemas import (
    CHECKPOINTS,
    CLUSTERS,
    CONSUMED,
    DUPLICATES,
    GROUPS,
    JUDGEMENTS,
    LANES,
    NEAR,
    REWARDS,
    TABLES,
    TRAJECTORIES,
    VERDICTS,
)
from pipelines.workspace import Workspace
from trainer.contract import ROWS_FILE

_MEMBERS = pa.schema([("batch_id", pa.string()), ("group_id", pa.string()), ("trajectory_id", pa.string())])


def edges(workspace: Workspace, checkpoint_id: str, batches: Sequence[str] | None = None) -> pa.Table:
    """Every edge from a checkpoint to the log lines that its own run learned from, in a total order.

    Columns: checkpoint_id, batch_id, group_id, trajectory_id, record_id, source, line. What its parents learned is theirs.
    `batches`: those of a checkpoint that is not registered yet; None: as it was registered.
    """
    own: Sequence[str] = _checkpoint(workspace, checkpoint_id)["batches"] or () if batches is None else batches
    return _edges(workspace, [(checkpoint_id, batch_id) for batch_id in own])


def backward(workspace: Workspace, ref: str) -> dict[str, Any]:
    """What something was made from, down to files and lines.

    `ref` is `<model>@<version>`, `<model>@champion`, or the id of a checkpoint, batch, group or trajectory. Returns
    `reference`, `checkpoint` (its id, None where it is none), `parents` ({checkpoint, policy_version, night, batches},
    nearest first, the base model last), `batches`, `groups`, `trajectories` (ids), `sources` ({file, line}). A checkpoint
    has its `policy_version`, `night` and `run_id` besides, anything else the `checkpoints` that learned from it ({checkpoint,
    policy_version, night, through}; `through` is `direct` or `parent`). What a checkpoint's parents learned is theirs: ask
    for them by name. UnknownReferenceError where the lake has no such thing.
    """
    kind = ref.partition("_")[0]
    if kind == "bat":
        if not _rows(workspace, CONSUMED.name, batch_id=ref) and not (workspace.batches / ref).exists():
            raise _unknown(ref)
        found = _edges(workspace, [(None, ref)])
        return {**_made_from(ref, found), "checkpoints": _learned(workspace, [ref])}
    if kind == "grp":
        members = sorted(row["trajectory_id"] for row in _rows(workspace, GROUPS.name, group_id=ref, role="member"))
        if not members:
            raise _unknown(ref)
        return _before_training(workspace, ref, members, [ref])
    if kind == "trj":
        _trajectory(workspace, ref)
        return _before_training(workspace, ref, [ref], None)
    return _of_checkpoint(workspace, ref)


def ask(workspace: Workspace, ref: str) -> dict[str, Any]:
    """`forward` for `<file>:<line>`, `backward` for any other reference; an id may be its beginning."""
    place = _place(ref)
    return backward(workspace, _whole(workspace, ref)) if place is None else forward(workspace, *place)


def forward(workspace: Workspace, file: str, line: int) -> dict[str, Any]:
    """What became of one line of a log: `records`, `trajectories`, `groups`, `batches` (ids) and the `checkpoints` that
    learned from it ({checkpoint, policy_version, night, through}), `direct` or through a `parent`.

    `file` as stored, or any path to it; `line` is any line of the record, from 1. `became` tells of each piece that is there
    what it became and why (log_lines.pieces_at); `begins` are the lines on which they begin. `skipped` holds the reasons of
    records that belong to no attempt, `quarantined` those of pieces that could not be read. UnknownReferenceError where
    nothing that landed is there.
    """
    pieces = pieces_at(workspace, file, line)
    by_fate = {fate: [piece for piece in pieces if piece["became"] == fate] for fate in ("duplicate", "skipped", "quarantined")}
    trajectories = sorted({piece["trajectory_id"] for piece in pieces if piece["trajectory_id"] is not None})
    told = ("record_id", "line", "became", "reason", "detail", "trajectory_id")
    return {
        "reference": f"{file}:{line}",
        "file": pieces[0]["source"],
        "line": line,
        "begins": sorted({piece["line"] for piece in pieces}),
        "became": [{name: piece[name] for name in told} for piece in pieces],
        "records": sorted({piece["record_id"] for piece in pieces if piece["became"] != "quarantined"}),
        "duplicates": sorted({piece["record_id"] for piece in by_fate["duplicate"]}),
        "skipped": sorted({piece["reason"] for piece in by_fate["skipped"]}),
        "quarantined": [piece["reason"] for piece in by_fate["quarantined"]],
        "trajectories": trajectories,
        **_used(workspace, trajectories),
    }


def why(workspace: Workspace, ref: str) -> dict[str, Any]:
    """The whole story of one trajectory through all tables; `ref` is its id or the beginning of it, or `<file>:<line>` of
    one of its records.

    Keys: `trajectory` (without its turns), `sources`, `duplicates`, `other_logs` (lines of logs that tell the same attempt:
    kind, similarity, format, file, line), `split`, `near` (the task of another split that its task is a
    near-copy of: near_key, near_split, similarity in 1e-6, trained, night; empty where none), `near_copies` (train tasks that
    are ones of its task), `clusters` (nights that had more groups of its task and near-copies than they take: cluster,
    num_tasks, num_groups, num_waiting), `eligible_for`, `eligible_reason`, `alone`, `group` (with `siblings` and `anchors`),
    `anchor_of` (groups beside which it stands and in which it counts nothing), `verdicts`,
    `rewards`, `judgements`, `lanes`, `batches`, `checkpoints`.
    """
    trajectory_id = _whole(workspace, ref) if ref.startswith("trj_") else _trajectory_at(workspace, ref)
    row = _trajectory(workspace, trajectory_id)
    others = workspace.queries.run("lineage/other_logs", {"trajectory_id": trajectory_id}).to_pylist()
    eligible = eligibility(workspace)
    lanes = eligible.filter(pc.field("trajectory_id") == trajectory_id).to_pylist()[0]
    lonely = alone(workspace, eligible).filter(pc.field("trajectory_id") == trajectory_id).to_pylist()
    group_id = lanes["group_id"]
    held = [] if group_id is None else _rows(workspace, GROUPS.name, group_id=group_id)
    siblings = [row["trajectory_id"] for row in held if row["role"] == "member" and row["trajectory_id"] != trajectory_id]
    anchors = [row["trajectory_id"] for row in held if row["role"] == "anchor"]
    group = None if group_id is None else {name: lanes[name] for name in ("group_id", "window", "seal_reason", "sealed_night")}
    judgements = [] if group_id is None else _rows(workspace, JUDGEMENTS.name, group_id=group_id)
    used = _used(workspace, [trajectory_id])
    untold = ("turns", "calls", "tools", "record_ids", "request_signature")
    told = {name: value for name, value in row.items() if name not in untold}
    return {
        "trajectory": {name: value.isoformat() if name.endswith("_at") and value else value for name, value in told.items()},
        "sources": _sources(_lines_of(workspace, [trajectory_id])),
        "duplicates": [duplicate["record_id"] for duplicate in _rows(workspace, DUPLICATES.name, trajectory_id=trajectory_id)],
        "other_logs": others,
        "split": lanes["split"],
        "near": _rows(workspace, NEAR.name, task_key=row["task_key"]),
        "near_copies": [near["task_key"] for near in _rows(workspace, NEAR.name, near_key=row["task_key"])],
        "clusters": _rows(workspace, CLUSTERS.name, task_key=row["task_key"]),
        "eligible_for": lanes["eligible_for"],
        "eligible_reason": lanes["eligible_reason"],
        "alone": lonely[0]["reason"] if lonely else None,
        "group": group and {**group, "siblings": siblings, "anchors": anchors},
        "anchor_of": [row["group_id"] for row in _rows(workspace, GROUPS.name, trajectory_id=trajectory_id, role="anchor")],
        "verdicts": _rows(workspace, VERDICTS.name, trajectory_id=trajectory_id),
        "rewards": sorted(_rows(workspace, REWARDS.name, trajectory_id=trajectory_id), key=lambda row: row["sequence"]),
        "judgements": [_judged(judgement, trajectory_id) for judgement in judgements],
        "lanes": sorted(_rows(workspace, LANES.name, trajectory_id=trajectory_id), key=lambda row: row["night"]),
        "batches": used["batches"],
        "checkpoints": used["checkpoints"],
    }


def _of_checkpoint(workspace: Workspace, ref: str) -> dict[str, Any]:
    row = _checkpoint(workspace, ref)
    known = {other["checkpoint_id"]: other for other in workspace.lake.read(CHECKPOINTS.name).to_pylist()}
    parents, current = [], row
    while current["checkpoint_id"] != chain.BASE:
        current = known.get(current["parent"] or chain.BASE) or _base(workspace, current["policy"])
        parents.append(_shown(current))
    pairs = [(row["checkpoint_id"], batch_id) for batch_id in row["batches"] or ()]
    return {
        **_made_from(ref, _edges(workspace, pairs), sorted(row["batches"] or ())),
        **{name: value for name, value in _shown(row).items() if name != "batches"},
        "run_id": row["run_id"],
        "parents": parents,
    }


def _checkpoint(workspace: Workspace, ref: str) -> dict[str, Any]:
    """The row of checkpoints/checkpoints that a reference names; a stand-in of the same shape for the base model."""
    model, _, version = ref.rpartition("@")
    own = workspace.config.policy.name
    if model == own and version == "champion":
        ref = chain.champion(workspace).checkpoint_id
    if ref == chain.BASE or (model == own and version == "0"):
        return _base(workspace, own)
    for row in workspace.lake.read(CHECKPOINTS.name).to_pylist():
        if ref == row["checkpoint_id"] or (model == row["policy"] and version == str(row["version"])):
            return row
    raise _unknown(ref)


def _base(workspace: Workspace, policy: str) -> dict[str, Any]:
    missing = dict.fromkeys(CHECKPOINTS.schema.names)
    return {**missing, "checkpoint_id": chain.BASE, "policy": policy, "version": 0, "batches": []}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "checkpoint": row["checkpoint_id"],
        "policy_version": f"{row['policy']}@{row['version']}",
        "night": row["night"],
        "batches": sorted(row["batches"] or ()),
    }


def _before_training(workspace: Workspace, ref: str, trajectories: list[str], groups: list[str] | None) -> dict[str, Any]:
    used = _used(workspace, trajectories)
    return {
        "reference": ref,
        "checkpoint": None,
        "parents": [],
        "batches": used["batches"],
        "groups": used["groups"] if groups is None else groups,
        "trajectories": trajectories,
        "sources": _sources(_lines_of(workspace, trajectories)),
        "checkpoints": used["checkpoints"],
    }


def _made_from(ref: str, found: pa.Table, batches: list[str] | None = None) -> dict[str, Any]:
    return {
        "reference": ref,
        "checkpoint": None,
        "parents": [],
        "batches": _distinct(found, "batch_id") if batches is None else batches,
        "groups": _distinct(found, "group_id"),
        "trajectories": _distinct(found, "trajectory_id"),
        "sources": _sources(found),
    }


def _used(workspace: Workspace, trajectories: list[str]) -> dict[str, Any]:
    """Groups that hold some trajectories, batches that really hold them, and the checkpoints that learned from those."""
    asked = _asked(trajectories)
    held = workspace.queries.run("lineage/batches_of", tables={"asked": asked})
    candidates = _distinct(held, "batch_id")
    found = _edges(workspace, [(None, batch_id) for batch_id in candidates])
    within = found.filter(pc.field("trajectory_id").isin(pa.array(trajectories, pa.string())))
    batches = _distinct(within, "batch_id")
    return {"groups": _distinct(held, "group_id"), "batches": batches, "checkpoints": _learned(workspace, batches)}


def _edges(workspace: Workspace, trained: Sequence[tuple[str | None, str]]) -> pa.Table:
    """Edges of (checkpoint_id, batch_id) pairs."""
    pairs = pa.table(
        {
            "checkpoint_id": pa.array([pair[0] for pair in trained], pa.string()),
            "batch_id": pa.array([pair[1] for pair in trained], pa.string()),
        }
    )
    frozen = [_frozen(workspace, batch_id) for batch_id in sorted({pair[1] for pair in trained})]
    tables = {"trained": pairs, "frozen": pa.concat_tables([_MEMBERS.empty_table(), *frozen])}
    return workspace.queries.run("lineage/edges", tables=tables)


def _frozen(workspace: Workspace, batch_id: str) -> pa.Table:
    """Members of a batch by its frozen rows; empty where its folder is gone."""
    path = workspace.batches / batch_id / ROWS_FILE
    if not path.exists():
        return _MEMBERS.empty_table()
    try:
        rows = pq.read_table(path, columns=["group_id", "trajectory_id"])
    except (OSError, pa.ArrowException) as problem:
        raise LakeError(
            f"batch {batch_id}: {path} cannot be read ({problem}); bring it back from a backup, or move the folder away: without "
            "it the batch is told by its groups",
            batch_id=batch_id,
        ) from problem
    return rows.append_column("batch_id", pa.array([batch_id] * rows.num_rows, pa.string())).select(_MEMBERS.names).cast(_MEMBERS)


def _learned(workspace: Workspace, batches: Sequence[str]) -> list[dict[str, Any]]:
    used = pa.table({"batch_id": pa.array(list(batches), pa.string())})
    return workspace.queries.run("lineage/learned", tables={"used": used}).to_pylist()


def _lines_of(workspace: Workspace, trajectories: Sequence[str]) -> pa.Table:
    return workspace.queries.run("lineage/sources", tables={"asked": _asked(trajectories)})


def _asked(trajectories: Sequence[str]) -> pa.Table:
    return pa.table({"trajectory_id": pa.array(list(trajectories), pa.string())})


def _sources(found: pa.Table) -> list[dict[str, Any]]:
    """Distinct files and lines, sorted."""
    lines = found.select(["source", "line"]).drop_null().group_by(["source", "line"]).aggregate([])
    lines = lines.sort_by([("source", "ascending"), ("line", "ascending")])
    return [{"file": row["source"], "line": row["line"]} for row in lines.to_pylist()]


def _distinct(rows: pa.Table, column: str) -> list[str]:
    return sorted(rows.column(column).drop_null().unique().to_pylist())


def _trajectory(workspace: Workspace, trajectory_id: str) -> dict[str, Any]:
    rows = _rows(workspace, TRAJECTORIES.name, trajectory_id=trajectory_id)
    if not rows:
        raise _unknown(trajectory_id)
    return rows[0]


def _trajectory_at(workspace: Workspace, ref: str) -> str:
    place = _place(ref)
    if place is None:
        raise _unknown(ref)
    pieces = pieces_at(workspace, *place)
    found = sorted({piece["trajectory_id"] for piece in pieces if piece["trajectory_id"] is not None})
    if not found:
        fates = ", ".join(f"{piece['became']} ({piece['reason']})" if piece["reason"] else piece["became"] for piece in pieces)
        raise UnknownReferenceError(f"{ref} is in no trajectory: {fates}; `nightshift lineage {ref}` tells more", ref=ref)
    if len(found) > 1:
        raise UnknownReferenceError(f"{ref} is the line of {len(found)} trajectories ({', '.join(found)}); name one of them")
    return found[0]


def _whole(workspace: Workspace, ref: str) -> str:
    frozen = [path.name for path in workspace.batches.iterdir()] if workspace.batches.exists() else []
    return whole_id(workspace.queries, ref, tables={"folders": pa.table({"id": pa.array(frozen, pa.string())})})


def _place(ref: str) -> tuple[str, int] | None:
    """File and line of `<file>:<line>`, None where a reference is something else."""
    file, _, line = ref.rpartition(":")
    # a line number beyond 18 digits is no number that the engine knows, nor one that any file has
    return (file, int(line)) if file and line.isdecimal() and len(line) <= 18 else None


def _judged(judgement: dict[str, Any], trajectory_id: str) -> dict[str, Any]:
    scores = orjson.loads(judgement["scores"]) if judgement["scores"] else {}
    kept = ("judgement_id", "judge", "rubric_hash", "status", "error", "night")
    return {**{name: judgement.get(name) for name in kept}, "ruler_score": scores.get(trajectory_id)}


def _rows(workspace: Workspace, table: str, **equal: Any) -> list[dict[str, Any]]:
    """Rows of a table whose columns have these values, sorted by its key."""
    condition = functools.reduce(operator.and_, (pc.field(column) == value for column, value in equal.items()))
    rows = workspace.lake.read(table, filter=condition)
    return rows.sort_by([(column, "ascending") for column in TABLES[table].key]).to_pylist()


def _unknown(ref: str) -> UnknownReferenceError:
    return UnknownReferenceError(
        f"nothing in this lake is named {ref}; name <model>@<version>, <model>@champion, a checkpoint, batch, group or "
        "trajectory id, or <file>:<line>",
        ref=ref,
    )
