"""Reads: landing/records, trajectories, groups, rewards, consumed, checkpoints. Writes: records, trajectories, renamed, groups/stale. Next: groups.

The log is the asset: landing/records keeps every record raw, so what an older parser made of it can be made again: where a
record belongs (landing/placed_anew.py) and what the records of a bundle are. A replay first says what would change, reading
slice by slice as a build does, and derives again where it is told to. Redacting anew comes last, since it makes trajectories
again by the parsers in force, and what those change must be known by then.

Sealed groups never change. One that holds a member whose row became another, or is gone, was put together and rewarded from
what is no longer so: it is entered in groups/stale before any row is replaced, is scored and trained no more, and what
learned from it keeps citing the batch that it really used. Its members form new groups with the next sealing, unless a batch
consumed it: what trained once trains no more (I14). A kill anywhere leaves bundles that are behind, which the same command
finds again.
"""

from __future__ import annotations

import datetime
import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from pipelines import groups
from pipelines.landing import placed_anew, redacted_anew, registry
from pipelines.landing.placed_anew import Placing
from pipelines.landing.retrying import Retried
from pipelines.landing.retrying import retry as retry_pieces
from pipelines.progress import bar
from pipelines.reports import Replayed
from pipelines.schemas import DUPLICATES, STALE, TABLES, TRAJECTORIES
from pipelines.steps import reached
from pipelines.tasks import rules_of
from pipelines.trajectories import UNREADABLE, Building, build, enter_renamed, renamed, slices
from pipelines.workspace import Workspace

DERIVED_BY = frozenset({"parser_version", "task_rules"})
"""Say who made a row and nothing about the attempt: alone they change nothing that anybody reads."""

_USAGE = ("num_prompt_tokens", "num_reply_tokens", "cost_usd")
_CLAIMED = ("call_ids", "copied_call_ids", "copied_from", "other_logs", "other_told")
NOT_WEIGHED = frozenset({*DERIVED_BY, "format", "task_source", "request_signature", "started_at", "ended_at", *_USAGE, *_CLAIMED})
"""Columns on which no group, verdict, reward or batch row rests: a member that changed in them alone makes no group stale."""


@dataclass
class _Changes:
    """What is different, counted; ids only of what others rest on, so that memory does not grow with the text."""

    bundles: list[str] = field(default_factory=list)
    """Bundles with a row that must be written again, if only for its parser version."""
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    columns: Counter[str] = field(default_factory=Counter)
    moved: dict[str, str] = field(default_factory=dict)
    """trajectory_id -> member_changed | member_removed, where a group may rest on it."""
    renamed: list[dict[str, Any]] = field(default_factory=list)
    """Rows of trajectories/renamed: attempts whose task gets another key."""
    readable: int = 0
    unreadable: int = 0

    def compare(self, bundle_keys: Sequence[str], before: _Rows, after: _Rows) -> None:
        """One slice: the stored rows and those that the parsers make now."""
        held, made = before.trajectories, after.trajectories
        behind: set[str] = set()
        for trajectory_id, row in made.items():
            old = held.get(trajectory_id)
            if old is None:
                self.added += 1
                behind.add(row["bundle_key"])
                continue
            different = {name for name, value in row.items() if old[name] != value}
            if different:
                behind.add(row["bundle_key"])
            if different - DERIVED_BY:
                self.changed += 1
                self.columns.update(different - DERIVED_BY)
            else:
                self.unchanged += 1
            if different - NOT_WEIGHED:
                self.moved[trajectory_id] = "member_changed"
        self.renamed += renamed(held, list(made.values()))
        for trajectory_id, row in held.items():
            if trajectory_id not in made:
                self.removed += 1
                self.moved[trajectory_id] = "member_removed"
                behind.add(row["bundle_key"])
        for record_id in before.duplicates.keys() | after.duplicates.keys():
            old, new = before.duplicates.get(record_id), after.duplicates.get(record_id)
            if old != new:
                behind.add((new or old or {})["bundle_key"])
            was, stays = (row is not None and row["kind"] == UNREADABLE for row in (old, new))
            self.readable += was and not stays
            self.unreadable += stays
        self.bundles += [bundle_key for bundle_key in bundle_keys if bundle_key in behind]


@dataclass(frozen=True)
class _Rows:
    """Rows of a slice by their key, as the lake's types give them."""

    trajectories: dict[str, dict[str, Any]]
    duplicates: dict[str, dict[str, Any]]


def replay(
    workspace: Workspace,
    *,
    format: str | None = None,
    first: str | None = None,
    last: str | None = None,
    every: bool = False,
    bundle_keys: Sequence[str] | None = None,
    apply: bool = False,
) -> Replayed:
    """What deriving again would change, or with `apply` does change.

    Looked at are the bundles that another parser version made, that were named under other rules ([groups] task, run,
    volatile) or that could not be read, with `every` all (other settings of a source reach what was built before only so); of `format` and with a record on the days `first` to `last` where these are
    given. `bundle_keys` narrows it to these, and to what their records are: none is put elsewhere. Where rules or the
    redaction key have changed, nothing else narrows it, since everything is redacted anew then: a secret knows no format.
    UnknownFormatError where no format has that name.
    """
    if format is not None:
        registry.by_name(format)
    redacted = redacted_anew.behind(workspace) if bundle_keys is None else {}
    holding = redacted_anew.holding(workspace) if bundle_keys is None else []
    redacts = bundle_keys is None and (bool(redacted) or redacted_anew.is_due(workspace))
    if redacts:
        format = first = last = None
    asked_for = {"format": format, "first": first, "last": last, "every": every}
    placing = placed_anew.look(workspace, **asked_for) if bundle_keys is None else placed_anew.nothing()
    wanted = _bundles(workspace, placing, asked_for)
    if bundle_keys is not None:
        asked = set(bundle_keys)
        wanted = [row for row in wanted if row["bundle_key"] in asked]
    changes = _compared(workspace, wanted, placing)
    stale = _stale(workspace, changes)
    versions: dict[str, int] = {}
    if apply and (changes.bundles or placing.rows.num_rows):
        enter_renamed(workspace, changes.renamed)  # before any row that says so is taken away
        _enter(workspace, stale)
        reached("replay:stale_entered")
        placed_anew.write(workspace, placing)
        if placing.moved:
            versions = build(workspace).versions
        versions |= _derive(workspace, [row for row in wanted if not row["moved"]], set(changes.bundles))
    if apply and redacts:
        _redact(workspace)
    return Replayed(
        applied=apply,
        bundles=len(wanted),
        added=changes.added,
        changed=changes.changed,
        removed=changes.removed,
        unchanged=changes.unchanged,
        columns=dict(changes.columns.most_common()),
        readable=changes.readable,
        unreadable=changes.unreadable,
        stale_groups=[row["group_id"] for row in stale],
        stale_rewards=sum(row["num_rewards"] for row in stale),
        checkpoints=_learned(workspace, stale),
        placed=dict(placing.columns),
        unplaced=dict(placing.kept),
        redacted=redacted,
        holding=holding,
        holding_checkpoints=_learned_from(workspace, holding),
        versions=versions,
        why_nothing=None if changes.bundles or placing.moved or redacted else _why_nothing(wanted),
    )


def retry(workspace: Workspace, record_ids: Sequence[str] | None = None) -> dict[str, Any]:
    """Try pieces of quarantine again, and bundles that could not be read; None: all of both.

    Returns `records` (new in the lake), `left` (pieces that are in quarantine no more), `readable` (records of bundles that
    can be read now), `stayed` ({why: pieces}) and what stages 2 and 3 made of it. UnknownReferenceError where an id is
    neither.
    """
    unreadable = {row["record_id"]: row["bundle_key"] for row in _unreadable(workspace)}
    named = None if record_ids is None else [record_id for record_id in record_ids if record_id not in unreadable]
    retried = Retried() if named == [] else retry_pieces(workspace, named)
    bundle_keys = {unreadable[record_id] for record_id in record_ids or unreadable if record_id in unreadable}
    again = replay(workspace, bundle_keys=sorted(bundle_keys), apply=True) if bundle_keys else None
    built = build(workspace)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    groups.assign_splits(workspace, day)
    sealed = groups.seal(workspace, day, judged=False)
    stayed = retried.stayed + Counter({"its bundle still cannot be read": again.unreadable if again else 0})
    return {
        "records": retried.records,
        "left": retried.left,
        "readable": again.readable if again else 0,
        "stayed": {why: number for why, number in stayed.items() if number},
        "trajectories": built.trajectories + (again.added + again.changed if again else 0),
        "groups": sealed.groups,
    }


def _unreadable(workspace: Workspace) -> list[dict[str, Any]]:
    kinds = ds.field("kind") == UNREADABLE
    return workspace.lake.read(DUPLICATES.name, ["record_id", "bundle_key"], kinds).to_pylist()


def _redact(workspace: Workspace) -> None:
    """Everything that is stored under the rules in force; what is made of changed records is made again.

    No id moves, so sealed groups stay what they are. The files with the old text are deleted: older versions of these tables
    cannot be read any more.
    """
    redacted_anew.redact_anew(workspace)
    build(workspace)
    redacted_anew.delete_old_files(workspace)


def _bundles(workspace: Workspace, placing: Placing, asked_for: dict[str, Any]) -> list[dict[str, Any]]:
    tables = {"current": placed_anew.current(), "placed": placing.placed}
    parameters = {**asked_for, "task_rules": rules_of(workspace).fingerprint}
    return workspace.queries.run("replay/bundles", parameters, tables=tables).to_pylist()


def _compared(workspace: Workspace, bundles: Sequence[dict[str, Any]], placing: Placing) -> _Changes:
    changes, building = _Changes(), Building(workspace, placing.placed)
    days = {row["bundle_key"]: (row["first_day"], row["last_day"]) for row in bundles}
    with bar("replay", len(bundles)) as advance:
        for bundle_keys in slices(bundles):
            after = building.rows(bundle_keys)
            stored_on = [day for key in bundle_keys for day in days[key] if day is not None]
            stored = functools.partial(_stored, workspace, bundle_keys, min(stored_on, default=""), max(stored_on, default=""))
            changes.compare(
                bundle_keys,
                _Rows(stored(TRAJECTORIES.name), stored(DUPLICATES.name)),
                _Rows(*(_typed(name, after[name]) for name in (TRAJECTORIES.name, DUPLICATES.name))),
            )
            advance(len(bundle_keys))
    return changes


def _stored(workspace: Workspace, bundle_keys: Sequence[str], first: str, last: str, table: str) -> dict[str, dict[str, Any]]:
    on_days = (ds.field("day") >= first) & (ds.field("day") <= last)
    rows = workspace.lake.read(table, filter=on_days & ds.field("bundle_key").isin(list(bundle_keys)))
    return _by_key(table, rows)


def _typed(table: str, rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows as they would come out of the lake, so that equal means equal there."""
    return _by_key(table, pa.Table.from_pylist(list(rows), schema=TABLES[table].schema))


def _by_key(table: str, rows: pa.Table) -> dict[str, dict[str, Any]]:
    (key,) = TABLES[table].key
    return {row[key]: row for batch in rows.to_batches(max_chunksize=1_000) for row in batch.to_pylist()}


def _stale(workspace: Workspace, changes: _Changes) -> list[dict[str, Any]]:
    moved = pa.table(
        {
            "trajectory_id": pa.array(list(changes.moved), pa.string()),
            "reason": pa.array(list(changes.moved.values()), pa.string()),
        }
    )
    return workspace.queries.run("replay/stale_groups", tables={"moved": moved}).to_pylist() if changes.moved else []


def _learned(workspace: Workspace, stale: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Checkpoints that learned from stale groups: the batches that they cite stay as they were."""
    if not stale:
        return []
    groups = pa.table({"group_id": pa.array([row["group_id"] for row in stale], pa.string())})
    batches = workspace.queries.run("replay/consumed_by", tables={"stale": groups})
    return _learned_from(workspace, batches.column("batch_id").to_pylist())


def _learned_from(workspace: Workspace, batch_ids: Sequence[str]) -> list[dict[str, Any]]:
    batches = pa.table({"batch_id": pa.array(batch_ids, pa.string())})
    return workspace.queries.run("lineage/learned", tables={"used": batches}).to_pylist()


def _enter(workspace: Workspace, stale: Sequence[dict[str, Any]]) -> None:
    rows = [{name: row[name] for name in STALE.schema.names} for row in stale if not row["known"]]
    if rows:
        workspace.lake.append_missing(STALE.name, pa.Table.from_pylist(rows, schema=STALE.schema))


def _derive(workspace: Workspace, bundles: Sequence[dict[str, Any]], behind: set[str]) -> dict[str, int]:
    building = Building(workspace)
    with bar("deriving again", len(behind)) as advance:
        for bundle_keys in slices([row for row in bundles if row["bundle_key"] in behind]):
            building.replace(bundle_keys)
            advance(len(bundle_keys))
    building.settle()
    return building.versions


def _why_nothing(bundles: Sequence[dict[str, Any]]) -> str:
    if not bundles:
        return "every trajectory was made by the parser in force"
    return f"{len(bundles)} bundle(s) read again give the same rows"
