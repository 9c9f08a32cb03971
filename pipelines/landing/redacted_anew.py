"""Reads: landing/records, quarantine, rewards/judgements. Writes: the same, under the rules in force. Next: trajectories.

A changed rule set must reach what is stored, and no id may move for it: where a record has no identities yet (the old rules
changed nothing in it), they are taken from its text before the new rules change that. What a rule that is gone had replaced
stays replaced; nobody has the text any more.

A changed redaction key is like a changed rule: tokens under a key that is gone become tokens under the one in force.

Every record that is rewritten gets the hash of the rules and the fingerprint of the key, so a kill leaves the rest for the next time. Old files are deleted
at the end: until then two sequences in the log of landing/records say that this is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.doors.lake import Lake, Snapshot
from pipelines.landing.naming import Naming
from pipelines.landing.redacting_again import redacted_again
from pipelines.landing.redaction import Redactor, keyed_anew, under
from pipelines.landing.redaction_rules import rules_of
from pipelines.landing.rows import RAW_LIMIT
from pipelines.schemas import DUPLICATES, JUDGEMENTS, QUARANTINE, RECORDS, ROLLOUTS, TABLES, TRAJECTORIES
from pipelines.steps import reached
from pipelines.workspace import Workspace

SLICE_BYTES = 64 << 20
SLICE_ROWS = 10_000

REDACTION = ("nightshift/redaction_begun", "nightshift/redaction_done")
"""App ids in the log of landing/records: the old files are deleted once the second has reached the first."""

PLACING = ("nightshift/placing_begun", "nightshift/placing_done")
"""The same of records that are put into other bundles (placed_anew.py)."""

TEXTS = (RECORDS.name, QUARANTINE.name, TRAJECTORIES.name, ROLLOUTS.name, DUPLICATES.name, JUDGEMENTS.name)
"""Tables that hold what the rules look at."""


@dataclass
class RedactedAnew:
    """What was redacted anew."""

    records: int = 0
    pieces: int = 0
    bundles: int = 0
    """Bundles of records whose text changed: their trajectories are gone until the next build."""


def behind(workspace: Workspace) -> dict[str, int]:
    """How many rows were redacted under other rules, by table; tables without any are left out."""
    counted = {table: rows.num_rows for table, rows in _behind(workspace).items()}
    if any(counted.values()):  # what a judge said is of the text of that time
        counted[JUDGEMENTS.name] = len(_judgements(workspace))
    return {table: number for table, number in counted.items() if number}


def holding(workspace: Workspace) -> list[str]:
    """Frozen batches whose rows may spell what is or will be redacted: nothing takes it out of them here."""
    parameters = {"under": under(rules_of(workspace), workspace.redaction_key)}
    return workspace.queries.run("replay/batches_holding", parameters).column("batch_id").to_pylist()


def is_due(workspace: Workspace) -> bool:
    """An earlier redaction was killed before it had deleted the old files."""
    return is_begun(workspace.lake, REDACTION)


def redact_anew(workspace: Workspace) -> RedactedAnew:
    """Redact what is behind. `build` must make the trajectories again, and `delete_old_files` end it."""
    lake, done, rows = workspace.lake, RedactedAnew(), _behind(workspace)
    if not any(found.num_rows for found in rows.values()):
        return done
    if not is_due(workspace):
        begin(lake, REDACTION)
    redact = _Redacting(workspace)
    for table, again in ((RECORDS.name, redact.record), (QUARANTINE.name, redact.piece)):
        partitioned = TABLES[table].partition is not None
        bundles: list[str] = []
        for day, ids in slices_of(rows[table], by_day=partitioned):
            wanted = ds.field("record_id").isin(ids)
            if table == RECORDS.name:
                redact.changed.clear()
                _rewritten(again)(lake.read(table, filter=wanted & (ds.field("day") == day)))
                bundles = sorted(redact.changed)
                # what was made of the old text goes first: records that are in no trajectory are what a build works on
                unmake(lake, bundles)
                done.bundles += len(bundles)
                done.records += len(ids)
                reached("redaction:unmade")
            else:
                done.pieces += len(ids)

            def compute(
                snapshot: Snapshot, wanted: Any = wanted, again: Any = again, day: str | None = day if partitioned else None
            ) -> pa.Table:
                held = snapshot.read(filter=wanted if day is None else wanted & (ds.field("day") == day))
                return _rewritten(again)(held)

            lake.replace_rows(table, "record_id", ids, compute, partition=day if partitioned else None)
            if bundles:  # another build may have made it of the old text again meanwhile
                unmake(lake, bundles)
    if found := _judgements(workspace):
        rewrite = _rewritten(redact.judgement)
        lake.replace_rows(JUDGEMENTS.name, "judgement_id", found, lambda at: rewrite(at.read(filter=_of_judgements(found))))
    return done


def _judgements(workspace: Workspace) -> list[str]:
    """Judgements whose replies hold what the rules in force replace."""
    redact = _Redacting(workspace)
    held = workspace.lake.read(JUDGEMENTS.name, ["judgement_id", "reply", "error"])
    rows = (row for batch in held.to_batches(max_chunksize=SLICE_ROWS) for row in batch.to_pylist())
    return sorted({row["judgement_id"] for row in rows if redact.judgement(row) != row})


def _of_judgements(ids: Sequence[str]) -> Any:
    return ds.field("judgement_id").isin(list(ids))


def begin(lake: Lake, work: tuple[str, str]) -> None:
    """Say in the log of landing/records that rows of it are about to change (REDACTION or PLACING)."""
    lake.append_computed(RECORDS.name, lambda at: _marked(work[0], (at.handle.transaction_version(work[0]) or 0) + 1))


def is_begun(lake: Lake, work: tuple[str, str]) -> bool:
    """Begun, and not ended: at work, or killed."""
    sequences = lake.sequences(RECORDS.name)
    return sequences.get(work[0], 0) > sequences.get(work[1], 0)


def end(lake: Lake, work: tuple[str, str], begun: int | None = None) -> None:
    """Say that it is done; `begun`: as far as that had begun, None: as far as it has."""

    def compute(snapshot: Snapshot) -> tuple[pa.Table, dict[str, int]] | None:
        reached_by = snapshot.handle.transaction_version(work[0]) or 0 if begun is None else begun
        return _marked(work[1], reached_by) if reached_by > (snapshot.handle.transaction_version(work[1]) or 0) else None

    lake.append_computed(RECORDS.name, compute)


def mark(lake: Lake) -> tuple[list[int], int | None]:
    """Taken before records are read to build something of them, for `overtaken`."""
    sequences = lake.sequences(RECORDS.name)
    return [sequences.get(work[0], 0) for work in (REDACTION, PLACING)], lake.version(RECORDS.name)


def overtaken(lake: Lake, before: tuple[list[int], int | None]) -> bool:
    """Whether records may have been redacted or placed anew since: what was built of them must be built again."""
    sequences = lake.sequences(RECORDS.name)
    at_work = any(
        sequences.get(work[0], 0) > min(begun, sequences.get(work[1], 0))
        for work, begun in zip((REDACTION, PLACING), before[0], strict=True)
    )
    return at_work and lake.version(RECORDS.name) != before[1]


def unmake(lake: Lake, bundle_keys: Sequence[str]) -> None:
    """Take away what was made of some bundles; the next build makes it again."""
    for made in (TRAJECTORIES.name, DUPLICATES.name, ROLLOUTS.name) if bundle_keys else ():
        held = lake.read(made, ["bundle_key"], ds.field("bundle_key").isin(list(bundle_keys)))
        if held.num_rows:
            empty = TABLES[made].schema.empty_table()
            lake.replace_rows(made, "bundle_key", bundle_keys, lambda _, empty=empty: empty)


def delete_old_files(workspace: Workspace) -> int:
    """Delete the files of older versions, which hold the old text; how many. Until it has ended it stays due."""
    lake = workspace.lake
    begun = lake.sequences(RECORDS.name).get(REDACTION[0], 0)
    gone = sum(len(lake.vacuum(table)) for table in TEXTS)
    reached("redaction:vacuumed")
    end(lake, REDACTION, begun)
    return gone


def _marked(app_id: str, sequence: int) -> tuple[pa.Table, dict[str, int]]:
    return RECORDS.schema.empty_table(), {app_id: sequence}


class _Redacting:
    """One row after another, under the rules in force."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.rules = workspace, rules_of(workspace)
        self.under = under(self.rules, workspace.redaction_key)
        self.naming = Naming.of(workspace.config)
        self.changed: set[str] = set()
        """Bundles of records whose text changed."""

    def record(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of landing/records."""
        if row["rules"] == self.under:
            return row
        redactor = self._redactor()
        again = redacted_again(row, redactor, self.workspace.identity, self.naming)
        if again["raw"] != row["raw"]:
            self.changed.add(row["bundle_key"])
        source = keyed_anew(row["source"], redactor.key, row["rules"])
        return {**row, **again, "source": redactor.text(source)}

    def judgement(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of rewards/judgements: only what was said changes, no score and no id."""
        texts = {name: self._redactor().text(row[name]) for name in ("reply", "error") if row[name] is not None}
        return {**row, **texts}

    def piece(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of landing/quarantine."""
        if row["rules"] == self.under:
            return row
        redactor = self._redactor()
        keyed = {
            name: keyed_anew(row[name], redactor.key, row["rules"])
            for name in ("source", "detail", "raw")
            if row[name] is not None
        }
        raw = redactor.bad_text(keyed.pop("raw", "").encode(), RAW_LIMIT)
        return {**row, **{name: redactor.text(text) for name, text in keyed.items()}, "raw": raw, "rules": self.under}

    def _redactor(self) -> Redactor:
        return Redactor(self.workspace.redaction_key, self.rules)


def _rewritten(again: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[pa.Table], pa.Table]:
    def rewrite(rows: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([again(row) for row in rows.to_pylist()], schema=rows.schema)

    return rewrite


def _behind(workspace: Workspace) -> dict[str, pa.Table]:
    parameters = {"rules": under(rules_of(workspace), workspace.redaction_key)}
    return {
        RECORDS.name: workspace.queries.run("replay/other_rules", parameters),
        QUARANTINE.name: workspace.queries.run("replay/other_rules_quarantine", parameters),
    }


def slices_of(rows: pa.Table, *, by_day: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Day and ids of (record_id, day, num_bytes) in the order of days, in portions of bounded text; of one day only where the table is cut by days."""
    ids: list[str] = []
    num_bytes, current = 0, ""
    for batch in rows.to_batches(max_chunksize=10_000):
        for row in batch.select(["record_id", "day", "num_bytes"]).to_pylist():
            full = num_bytes >= SLICE_BYTES or len(ids) >= SLICE_ROWS or (by_day and row["day"] != current)
            if ids and full:
                yield current, ids
                ids, num_bytes = [], 0
            current = row["day"]
            ids.append(row["record_id"])
            num_bytes += row["num_bytes"] or 0
    if ids:
        yield current, ids
