"""Which tasks are trained on and which are held out: the first assignment of a task wins for ever (I8).

Tasks of the configured evaluation sets are assigned before any other; the rest is drawn by a keyed hash of the task, so
that the draw depends neither on the order in which tasks are seen nor on which others there are. Two exceptions: a task that got
its key when rules or a parser changed takes over the strictest split of the keys that its attempts had before, so that what
was held out stays so; and what is drawn for evaluation although a near-copy of it has trained is trained on too, since it
would measure memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.doors.lake import Snapshot
from pipelines.errors import ConfigError
from pipelines.groups.near_tasks import Entered, enter, near_trained
from pipelines.groups.night_windows import night_windows
from pipelines.schemas import RENAMED, SPLITS
from pipelines.tasks import rules_of
from pipelines.workspace import Workspace


def assign_splits(workspace: Workspace, day: str) -> dict[str, int]:
    """Give every task that has none a split; returns the number of tasks by split, all that are known.

    `day` (YYYY-MM-DD) is when new ones are assigned: none of the log's while attempts are stored that were named under other
    rules than those in force (`nightshift replay --apply` names them anew). ConfigError where an evaluation set cannot be read,
    where one task stands in both, or where a task was given another split before it was put into a set: it may have been trained
    on. Then requests that are new are held against those of other splits (near_tasks.py): every task with a split was compared.
    """
    return assign_and_compare(workspace, day)[0]


def assign_and_compare(workspace: Workspace, day: str) -> tuple[dict[str, int], Entered]:
    """`assign_splits`, with what comparing found."""
    named = _eval_set_tasks(workspace)
    in_force = {"task_rules": rules_of(workspace).fingerprint}
    named_otherwise = workspace.queries.run("groups/named_otherwise", in_force).column("num_trajectories")[0].as_py()
    only = night_windows(workspace, day).only
    # what a task of today was called before may have been logged in any window
    where = {} if workspace.lake.version(RENAMED.name) is not None else only

    def compute(snapshot: Snapshot) -> pa.Table | None:
        assigned = snapshot.read(
            columns=["task_key", "split"], filter=ds.field("task_key").isin(pa.array(list(named), pa.string()))
        )
        held = dict(zip(*(assigned.column(name).to_pylist() for name in ("task_key", "split")), strict=True))
        _refuse_moved(named, held)
        logged = workspace.queries.run("groups/new_tasks", pinned={SPLITS.name: snapshot.handle}, only=where)
        if named_otherwise:  # nobody knows yet which attempts are at tasks that are held out under another name
            logged = logged.slice(0, 0)
        splits = {key: (task.split, "eval_set") for key, task in named.items() if key not in held}
        found = dict(zip(*(logged.column(name).to_pylist() for name in ("task_key", "inherited")), strict=True))
        drawn: dict[str, str] = {}
        for key, inherited in found.items():
            if key in splits:
                continue
            if inherited is not None:
                splits[key] = (inherited, "inherited")
            else:
                drawn[key] = _drawn(workspace, key)
        memorised = near_trained(workspace, [key for key, split in drawn.items() if split != "train"])
        for key, split in drawn.items():
            splits[key] = ("train", "near_trained") if key in memorised else (split, "drawn")
        if not splits:
            return None
        keys = sorted(splits)
        return pa.table(
            {
                "task_key": keys,
                "split": [splits[key][0] for key in keys],
                "source": [splits[key][1] for key in keys],
                "day": [day] * len(keys),
            }
        )

    workspace.lake.append_computed(SPLITS.name, compute)
    entered = enter(workspace, day, only=only)
    counts = workspace.queries.run("groups/split_counts")
    return dict(zip(counts.column("split").to_pylist(), counts.column("num_tasks").to_pylist(), strict=True)), entered


def _drawn(workspace: Workspace, task_key: str) -> str:
    evaluation = workspace.config.evaluation
    share = workspace.identity.share("split", task_key)
    if share < evaluation.held_out_share:
        return "held_out"
    return "audit" if share < evaluation.held_out_share + evaluation.audit_share else "train"


@dataclass(frozen=True)
class _Named:
    task_id: str
    split: str
    file: str


def _refuse_moved(named: Mapping[str, _Named], held: Mapping[str, str]) -> None:
    moved = [(task, held[key]) for key, task in named.items() if held.get(key, task.split) != task.split]
    if moved:
        task, split = moved[0]
        raise ConfigError(
            f"{len(moved)} task(s) of {task.file} (first: {task.task_id}) were in the {split} split before, and the first "
            f"assignment wins for ever; take them out of the {task.split} set"
        )


def _eval_set_tasks(workspace: Workspace) -> dict[str, _Named]:
    """The tasks in the configured evaluation sets, by task_key."""
    harness = workspace.config.harness.name
    found: dict[str, _Named] = {}
    for split, file in (("held_out", workspace.config.evaluation.held_out), ("audit", workspace.config.evaluation.audit)):
        if file is None:
            continue
        for task_id in _task_ids(workspace.path(file)):
            key = workspace.identity.task_key(harness, task_id)
            first = found.setdefault(key, _Named(task_id, split, file))
            if first.split != split:
                raise ConfigError(
                    f"task {task_id} stands in the {first.split} set and in the {split} set; take it out of one of them",
                    task_key=key,
                )
    return found


def _task_ids(path: Path) -> list[str]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as problem:
        raise ConfigError(f"evaluation set {path} cannot be read ({problem.strerror}); see [evaluation]") from None
    ids: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            task_id = orjson.loads(line)["task_id"]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path}:{number} is no task: each line is a JSON object with a task_id") from None
        ids.append(str(task_id))
    return ids
