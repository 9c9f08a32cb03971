"""Reads: runs/<run_id>/checkpoint, batches/consumed, rewards/rewards, the lineage tables. Writes: an MLflow model version, checkpoints/checkpoints. Next: evaluation.

MLflow first, the lake's row second: a kill between the two leaves a version that the next call finds by its tag
`checkpoint_id`, so that one checkpoint has one version. Where MLflow does not answer nothing is written here, the
checkpoint's folder stays, and the same command registers it later.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines import chain, lineage, training
from pipelines.doors.registry import ARTIFACTS, Entry, Input, Registry
from pipelines.errors import TrainingError, UnknownReferenceError
from pipelines.ids import plain_hash
from pipelines.locks import waiting
from pipelines.reports import Registered, Trained
from pipelines.schemas import CHECKPOINTS
from pipelines.steps import reached
from pipelines.workspace import Workspace, code_version
from trainer.contract import MANIFEST_FILE, CheckpointManifest

ADAPTER_FILE = "adapter_model.safetensors"
EDGES_FILE = "edges.parquet"
LOCK_FILE = ".register.lock"

LINEAGE = {
    "landing/records": "record_id",
    "trajectories/trajectories": "trajectory_id",
    "groups/groups": "group_id",
    "rewards/rewards": "group_id",
    "batches/consumed": "batch_id",
}
"""Tables that a checkpoint names as its inputs -> column of the edges whose values say which rows."""


def register(workspace: Workspace, night: str, trained: Trained | None = None) -> Registered:
    """Register the night's checkpoint; `trained` None: find it as the training stage would.

    Found again by checkpoint_id, first in the lake, then in MLflow. RegistryError where MLflow is unreachable,
    TrainingError where the night's run has not finished.
    """
    if trained is None:
        plan = training.plan(workspace, night)
        if not plan.done:
            raise TrainingError(f"run {plan.run_id} has no checkpoint yet; run the training stage of night {night} first")
        trained = training.finish(workspace, plan, 0)
    if trained.folder is None:
        return Registered(
            checkpoint_id=None,
            policy_version=None,
            version=None,
            reused=True,
            mlflow_run_id=None,
            why_nothing=trained.why_nothing,
        )
    manifest = CheckpointManifest.read(trained.folder)
    held = _row(workspace, manifest.checkpoint_id)
    if held is not None:
        return _registered(workspace, held, reused=True)
    with waiting(workspace.runs / LOCK_FILE):  # two processes would make two versions: MLflow has no compare-and-set
        held = _row(workspace, manifest.checkpoint_id)
        if held is not None:
            return _registered(workspace, held, reused=True)
        row = _row_of(workspace, night, trained.folder, manifest)
        entry = _entry(workspace, trained.folder, manifest, row)
        version = registry(workspace).register(entry, above=_highest_version(workspace))
        reached("checkpoints:after_registry")
        row |= {"version": version.version, "mlflow_run_id": version.mlflow_run_id}
        commit = workspace.lake.append_missing(CHECKPOINTS.name, pa.Table.from_pylist([row], schema=CHECKPOINTS.schema))
    stored = _row(workspace, manifest.checkpoint_id)
    assert stored is not None, "append_missing has just committed it or found it"
    return _registered(workspace, stored, reused=commit.num_rows == 0)


def of_night(workspace: Workspace, night: str) -> chain.Policy | None:
    """The checkpoint that stands for a night; None where it trained nothing."""
    found = workspace.queries.run("training/of_night", {"night": night, "policy": workspace.config.policy.name}).to_pylist()
    return chain.policy(workspace, found[0]["checkpoint_id"]) if found else None


def listed(workspace: Workspace) -> list[dict[str, Any]]:
    """All checkpoints by version: parent, batches, the gate's last decision with its numbers, and which one is champion."""
    parameters = {"policy": workspace.config.policy.name, "champion": chain.champion(workspace).checkpoint_id}
    return workspace.queries.run("checkpoints/listed", parameters).to_pylist()


def marks(workspace: Workspace, checkpoint_id: str) -> list[str]:
    """Why a checkpoint may not promote itself, sorted; empty where nothing is against it."""
    row = _row(workspace, checkpoint_id)
    return [] if row is None else sorted(row["marks"] or [])


def night_of(workspace: Workspace, checkpoint_id: str) -> str:
    """The night that a checkpoint was registered for."""
    row = _row(workspace, checkpoint_id)
    if row is None:
        raise UnknownReferenceError(f"no checkpoint {checkpoint_id} in this lake; see `nightshift checkpoints`")
    return row["night"]


def registry(workspace: Workspace) -> Registry:
    """The registry of the workspace's policy."""
    owned = workspace.config.registry.uri is None
    return Registry(workspace.registry_uri, workspace.config.policy.name, workspace.folder / "mlartifacts" if owned else None)


def write_edges(run: Path, edges: pa.Table) -> Path:
    """Keep a checkpoint's lineage beside its run, where no vacuum reaches it."""
    path = run / EDGES_FILE
    partial = path.with_name(EDGES_FILE + ".partial")
    pq.write_table(edges, partial)
    partial.replace(path)
    return path


def _row(workspace: Workspace, checkpoint_id: str) -> dict[str, Any] | None:
    import pyarrow.compute as pc

    rows = workspace.lake.read(CHECKPOINTS.name, filter=pc.field("checkpoint_id") == checkpoint_id).to_pylist()
    return rows[0] if rows else None


def _highest_version(workspace: Workspace) -> int:
    """Of the checkpoints in the lake; 0 where there are none."""
    held = workspace.lake.read(CHECKPOINTS.name, columns=["policy", "version"]).to_pylist()
    return max((row["version"] for row in held if row["policy"] == workspace.config.policy.name), default=0)


def _registered(workspace: Workspace, row: dict[str, Any], *, reused: bool) -> Registered:
    version = workspace.lake.version(CHECKPOINTS.name)
    return Registered(
        checkpoint_id=row["checkpoint_id"],
        policy_version=f"{row['policy']}@{row['version']}",
        version=row["version"],
        reused=reused,
        mlflow_run_id=row["mlflow_run_id"],
        versions={} if version is None else {CHECKPOINTS.name: version},
    )


def _row_of(workspace: Workspace, night: str, folder: Path, manifest: CheckpointManifest) -> dict[str, Any]:
    """The lake's row but for what MLflow answers."""
    made = workspace.queries.run("checkpoints/provenance", {"batch_ids": manifest.batches}).to_pylist()[0]
    marked = {
        "judge_only": "judge_only" in made["rules"],
        "again": bool(made["again"]),
        "shuffled": _run(folder).get("shuffle_advantages", False),
    }
    return {
        "checkpoint_id": manifest.checkpoint_id,
        "policy": workspace.config.policy.name,
        "parent": manifest.parent,
        "run_id": manifest.run_id,
        "batches": sorted(manifest.batches),
        "lane": manifest.lane,
        "night": night,
        "path": workspace.shown(folder),
        "adapter_sha256": manifest.files.get(ADAPTER_FILE),
        "rubric_hash": ",".join(made["rubric_hashes"] or []),
        "config_hash": manifest.config_hash,
        "code_version": code_version(),
        "metrics": orjson.dumps(manifest.metrics, option=orjson.OPT_SORT_KEYS).decode(),
        "marks": sorted(mark for mark, holds in marked.items() if holds),
    }


def _entry(workspace: Workspace, folder: Path, manifest: CheckpointManifest, row: dict[str, Any]) -> Entry:
    edges = lineage.edges(workspace, manifest.checkpoint_id, manifest.batches)
    edges_file = write_edges(folder.parent, edges)
    adapter = [folder / name for name in sorted(manifest.files) if name.startswith("adapter")]
    beside = [folder.parent / name for name in (training.RUN_FILE, training.METRICS_FILE)]
    params = {name: str(value) for name, value in _run(folder).items() if not isinstance(value, list)}
    return Entry(
        checkpoint_id=manifest.checkpoint_id,
        run_name=f"{row['night']} {manifest.run_id}",
        params=params,
        metrics=_metrics(folder.parent / training.METRICS_FILE),
        tags={
            "batches": ",".join(row["batches"]),
            "parent": manifest.parent or chain.BASE,
            "rubric_hash": row["rubric_hash"],
            "code_version": row["code_version"],
            "config_hash": manifest.config_hash,
            "lane": manifest.lane,
            "night": row["night"],
            "run_id": manifest.run_id,
            "adapter_sha256": row["adapter_sha256"] or "",
            "marks": ",".join(row["marks"]),
        },
        inputs=_inputs(workspace, edges),
        artifacts={
            ARTIFACTS: [*adapter, folder / MANIFEST_FILE],
            "run": [path for path in beside if path.exists()],
            "lineage": [edges_file],
        },
        timestamp=int((folder / MANIFEST_FILE).stat().st_mtime * 1000),
    )


def _inputs(workspace: Workspace, edges: pa.Table) -> list[Input]:
    found = []
    for table, column in LINEAGE.items():
        version = workspace.lake.version(table)
        if version is not None:
            learned_from = sorted({str(value) for value in edges.column(column).to_pylist() if value is not None})
            found.append(Input(table, workspace.lake.uri(table), version, plain_hash(learned_from)))
    return found


def _metrics(path: Path) -> Sequence[tuple[str, float, int]]:
    return [
        (name, float(value), int(step["step"]))
        for step in training.read_metrics(path)
        for name, value in step.items()
        if name not in ("step", "num_steps") and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]


def _run(folder: Path) -> dict[str, Any]:
    path = folder.parent / training.RUN_FILE
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
