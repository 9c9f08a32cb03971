"""Reads: landing/records. Writes: trajectories/rollouts, /trajectories, /duplicates, /renamed. Next: groups.

Stage 2: the records of each bundle become one or more rows in uniform words, whatever format they were logged in. Bundles
are built anew as a whole, so that a mended parser or a late record changes what it should and nothing else. Every record
that belongs to an attempt ends in exactly one place (I1): what is in none, or in two, is what the next build works on, so
a build that was killed between its tables heals by running again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.config import SourceConfig
from pipelines.doors.lake import Snapshot
from pipelines.landing import redacted_anew
from pipelines.landing.bundle_rows import MISREAD, UNREADABLE, BundleRead, family_of, said, unreadable
from pipelines.landing.same_attempt import behind, resolve
from pipelines.landing.sources import settings_of
from pipelines.reports import Built
from pipelines.schemas import DUPLICATES, RENAMED, ROLLOUTS, TABLES, TRAJECTORIES
from pipelines.signatures import Making, signatures
from pipelines.tasks import rules_of
from pipelines.workspace import Workspace

__all__ = ["UNREADABLE", "Building", "build", "family_of", "said", "slices"]

SLICE_BYTES = 64 << 20
"""Stored text that is built at once; what is made of it takes several times as much memory."""

SLICE_BUNDLES = 2_000
"""Bundles that are built at once: a commit that replaces rows names each of them."""

MADE = (ROLLOUTS.name, TRAJECTORIES.name, DUPLICATES.name)
"""Tables that a bundle's rows go to, in the order in which they are written: what other logs are held against goes first."""

_NAMED = ("task_key", "task_rules", "parser_version")


def build(workspace: Workspace, days: Sequence[str] | None = None) -> Built:
    """Make the trajectories of every bundle with an unaccounted record, and of all bundles of `days` (YYYY-MM-DD) besides.

    A record is unaccounted where it is in no trajectory and no duplicate, or in both. Bundles that are new are appended,
    slice by slice, so that memory does not grow with the log; of those that were built before the rows are replaced, on
    whatever days they lie. A bundle that its parser cannot read ends in trajectories/duplicates as
    `unreadable` and stops nobody else. Bundles whose answers turn out to be another's, or are its no more, are built again.
    """
    unaccounted = workspace.queries.run("trajectories/unaccounted")
    asked = pa.table({"day": pa.array(sorted(days or ()), pa.string())})
    touched = workspace.queries.run("trajectories/touched", tables={"unaccounted": unaccounted, "asked": asked})
    built = Building(workspace)
    bundles = touched.to_pylist()
    for bundle_keys in slices([row for row in bundles if not row["built"]]):
        built.add(bundle_keys)
    for bundle_keys in slices([row for row in bundles if row["built"]]):
        built.replace(bundle_keys)
    settled = built.settle()
    if touched.num_rows == 0 and not settled:
        return Built(
            days=[], trajectories=0, duplicates=0, faults=0, why_nothing="every record that landed is in a trajectory already"
        )
    return built.report()


def slices(bundles: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """Bundle keys in portions of about SLICE_BYTES of stored records, in the order given ({bundle_key, num_bytes})."""
    portion: list[str] = []
    num_bytes = 0
    for bundle in bundles:
        portion.append(bundle["bundle_key"])
        num_bytes += bundle["num_bytes"]
        if num_bytes >= SLICE_BYTES or len(portion) >= SLICE_BUNDLES:
            yield portion
            portion, num_bytes = [], 0
    if portion:
        yield portion


class Building:
    """Builds slices of bundles and counts what came of them."""

    def __init__(self, workspace: Workspace, placed: pa.Table | None = None) -> None:
        """`placed`: where a replay would put some records (placed_anew.PLACED); for `rows` alone."""
        self.workspace, self.placed, self.rules = workspace, placed, rules_of(workspace)
        self.settings: dict[str, SourceConfig | None] = {}
        self.days: set[str] = set()
        self.trajectories = self.faults = self.linked = self.gaps = self.identical = 0
        self.left_out: Counter[str] = Counter()
        self.named_by: Counter[str] = Counter()
        self.versions: dict[str, int] = {}

    def add(self, bundle_keys: list[str]) -> None:
        """Bundles that no trajectory is made of yet: their rows are appended, unless another build was first."""
        before = redacted_anew.mark(self.workspace.lake)
        rows = self.rows(bundle_keys)

        def missing(table: str) -> Callable[[Snapshot], pa.Table]:
            def compute(snapshot: Snapshot) -> pa.Table:
                held = snapshot.read(columns=["bundle_key"], filter=ds.field("bundle_key").isin(bundle_keys))
                known = set(held.column("bundle_key").to_pylist())
                fresh = [row for row in rows[table] if row["bundle_key"] not in known]
                return pa.Table.from_pylist(fresh, schema=TABLES[table].schema)

            return compute

        for table in MADE:
            self.versions[table] = self.workspace.lake.append_computed(table, missing(table)).version
        if redacted_anew.overtaken(self.workspace.lake, before):  # else text that is redacted by now would stay in them
            self.replace(bundle_keys)
        else:
            self._count(rows, {row["day"] for row in rows[TRAJECTORIES.name]})

    def replace(self, bundle_keys: list[str]) -> None:
        """Bundles that trajectories were made of before: their rows are replaced, on the days that they leave and enter."""
        asked = pa.table({"bundle_key": pa.array(bundle_keys, pa.string())})
        left = self.workspace.queries.run("trajectories/days_of_bundles", tables={"asked": asked}).column("day").to_pylist()
        before = redacted_anew.mark(self.workspace.lake)
        rows = self.rows(bundle_keys)
        self._enter_renamed(bundle_keys, rows[TRAJECTORIES.name])
        for table in MADE:
            made = pa.Table.from_pylist(rows[table], schema=TABLES[table].schema)
            commit = self.workspace.lake.replace_rows(table, "bundle_key", bundle_keys, lambda _, made=made: made)
            self.versions[table] = commit.version
        if redacted_anew.overtaken(self.workspace.lake, before):
            self.replace(bundle_keys)
            return
        self._count(rows, {*left, *(row["day"] for kept in rows.values() for row in kept)})

    def _enter_renamed(self, bundle_keys: list[str], rows: Sequence[dict[str, Any]]) -> None:
        columns = ["trajectory_id", *_NAMED]
        held = self.workspace.lake.read(TRAJECTORIES.name, columns, ds.field("bundle_key").isin(bundle_keys))
        enter_renamed(self.workspace, renamed({row["trajectory_id"]: row for row in held.to_pylist()}, rows))

    def settle(self) -> int:
        """Build again what says otherwise than all rollouts together: whose an answer is, which log of an attempt is kept, what
        that one takes over; how many bundles.

        Rollouts do not depend on each other, so once is enough, and a build that was killed before this is healed by the next.
        """
        misowned = behind(self.workspace)
        for bundle_keys in slices(misowned):
            self.replace(bundle_keys)
        return len(misowned)

    def report(self) -> Built:
        """What was built."""
        return Built(
            days=sorted(self.days),
            trajectories=self.trajectories,
            duplicates=self.left_out.total(),
            left_out=dict(sorted(self.left_out.items())),
            faults=self.faults,
            linked=self.linked,
            gaps=self.gaps,
            identical=self.identical,
            named_by=dict(sorted(self.named_by.items())),
            unreadable=self.left_out[UNREADABLE],
            versions=self.versions,
        )

    def _count(self, rows: Mapping[str, list[dict[str, Any]]], days: set[str]) -> None:
        self.days |= days
        made = rows[TRAJECTORIES.name]
        self.trajectories += len(made)
        self.faults += sum(1 for row in made if row["fault"] is not None)
        self.linked += sum(1 for row in made if row["link"] is not None)
        self.gaps += sum(1 for row in made if row["num_gaps"])
        self.identical += sum(row["num_identical"] - 1 for row in made)
        self.named_by.update(row["task_source"] for row in made)
        self.left_out.update(row["kind"] for row in rows[DUPLICATES.name])

    def rows(self, bundle_keys: list[str]) -> dict[str, list[dict[str, Any]]]:
        """Rows of the tables in MADE, each sorted by id."""
        asked = pa.table({"bundle_key": pa.array(bundle_keys, pa.string())})
        if self.placed is None or not self.placed.num_rows:
            records = self.workspace.queries.run("trajectories/bundles", tables={"asked": asked})
        else:
            records = self.workspace.queries.run("replay/bundles_as_placed", tables={"asked": asked, "placed": self.placed})
        rows: dict[str, list[dict[str, Any]]] = {table: [] for table in MADE}
        one_by_one = (row for batch in records.to_batches(max_chunksize=1_000) for row in batch.to_pylist())
        read: list[tuple[BundleRead, list[dict[str, Any]]]] = []
        for bundle_key, of_bundle in itertools.groupby(one_by_one, key=lambda row: row["bundle_key"]):
            given = list(of_bundle)
            try:
                bundle = BundleRead(self.workspace, self.rules, bundle_key, given, self._source(given))
                read.append((bundle, bundle.rollouts()))
            except MISREAD as problem:
                rows[DUPLICATES.name] += unreadable(bundle_key, given, problem)
        resolved = resolve(self.workspace, [rollout for _, rollouts in read for rollout in rollouts], bundle_keys)
        for bundle, rollouts in read:
            trajectories, duplicates = bundle.rows(resolved)
            rows[ROLLOUTS.name] += rollouts
            rows[TRAJECTORIES.name] += trajectories
            rows[DUPLICATES.name] += duplicates
        made = rows[TRAJECTORIES.name]
        requests = signatures([row.pop("request") for row in made], Making.of(self.workspace.config.groups))
        for row, signature in zip(made, requests, strict=True):
            row["request_signature"] = signature
        rows[ROLLOUTS.name].sort(key=lambda row: row["trajectory_id"])
        made.sort(key=lambda row: row["trajectory_id"])
        rows[DUPLICATES.name].sort(key=lambda row: row["record_id"])
        return rows

    def _source(self, records: list[dict[str, Any]]) -> SourceConfig | None:
        source = min(record["source"] for record in records)
        if source not in self.settings:
            self.settings[source] = settings_of(self.workspace, source)
        return self.settings[source]


def renamed(held: Mapping[str, Mapping[str, Any]], made: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Attempts whose task has another key since rules or parser changed, as rows of trajectories/renamed.

    `held`: rows that are about to be replaced, by trajectory_id. A record that came late renames no task in this sense: what
    an attempt was called before it was whole depends on the order of delivery, and must decide nothing.
    """
    rows = []
    for row in made:
        old = held.get(row["trajectory_id"])
        if old is None or old["task_key"] == row["task_key"]:
            continue
        if any(old[name] != row[name] for name in ("task_rules", "parser_version")):
            rows.append({"trajectory_id": row["trajectory_id"], "former_key": old["task_key"], "task_key": row["task_key"]})
    return rows


def enter_renamed(workspace: Workspace, rows: Sequence[dict[str, Any]]) -> None:
    """Keep what attempts' tasks were called before their rows are replaced: what was held out then stays so (I8)."""
    if rows:
        workspace.lake.append_missing(RENAMED.name, pa.Table.from_pylist(list(rows), schema=RENAMED.schema))
