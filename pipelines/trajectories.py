"""Reads: landing/records. Writes: trajectories/trajectories, trajectories/duplicates, trajectories/renamed. Next: groups.

Stage 2: the records of each bundle become one or more rows in uniform words, whatever format they were logged in. Bundles
are built anew as a whole, so that a mended parser or a late record changes what it should and nothing else. Every record
that belongs to an attempt ends in exactly one place (I1): what is in none, or in two, is what the next build works on, so
a build that was killed between its two tables heals by running again.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.config import SourceConfig
from pipelines.doors.lake import Snapshot
from pipelines.errors import NamingError
from pipelines.ids import canonical_json
from pipelines.landing import redacted_anew, registry
from pipelines.landing.copied import claims_of, without_copied
from pipelines.landing.format import Attempt, Bundle, StoredRecord, asked, units
from pipelines.landing.naming import masked_id
from pipelines.landing.shared_answers import shared_answers
from pipelines.landing.sources import settings_of
from pipelines.landing.spelling import turn_id, with_identities
from pipelines.reports import Built
from pipelines.schemas import DUPLICATES, RENAMED, TABLES, TRAJECTORIES
from pipelines.signatures import Making, request_text, signatures
from pipelines.tasks import INTERNAL, LOG, NOTHING, REDACTED, REQUEST, RULE, StoredValue, TaskRules, rules_of
from pipelines.workspace import Workspace

SLICE_BYTES = 64 << 20
"""Stored text that is built at once; what is made of it takes several times as much memory."""

SLICE_BUNDLES = 2_000
"""Bundles that are built at once: a commit that replaces rows names each of them."""

UNREADABLE = "unreadable"
NO_TURNS = "no_turns"
SHOWN = "duplicate_view"
"""Kinds of duplicates (reasons.DUPLICATE_KINDS) that are told apart here."""

_MISREAD = (ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, NamingError)
"""What a parser raises whose records are not what it takes them for, and a rule of the workspace that breaks over an attempt."""

_CLAIMS = pa.schema(
    [TRAJECTORIES.schema.field(name) for name in ("trajectory_id", "bundle_key", "format", "started_at", "ended_at", "call_ids")]
)

_NAMED = ("task_key", "task_rules", "parser_version")

UNKNOWN_POLICY = "unknown"
"""policy_family of attempts whose log names no model."""


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

        for table in (TRAJECTORIES.name, DUPLICATES.name):
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
        for table in (TRAJECTORIES.name, DUPLICATES.name):
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
        """Build again what says otherwise than all claims together whose an answer is; how many bundles.

        Claims do not depend on who owns what, so once is enough, and a build that was killed before this is healed by the
        next one.
        """
        misowned = self.workspace.queries.run("trajectories/misowned").to_pylist()
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
        """Rows of both tables, each sorted by id."""
        asked = pa.table({"bundle_key": pa.array(bundle_keys, pa.string())})
        if self.placed is None or not self.placed.num_rows:
            records = self.workspace.queries.run("trajectories/bundles", tables={"asked": asked})
        else:
            records = self.workspace.queries.run("replay/bundles_as_placed", tables={"asked": asked, "placed": self.placed})
        rows: dict[str, list[dict[str, Any]]] = {TRAJECTORIES.name: [], DUPLICATES.name: []}
        one_by_one = (row for batch in records.to_batches(max_chunksize=1_000) for row in batch.to_pylist())
        read: list[_Read] = []
        for bundle_key, of_bundle in itertools.groupby(one_by_one, key=lambda row: row["bundle_key"]):
            given = list(of_bundle)
            try:
                read.append(_Read(self.workspace, self.rules, bundle_key, given, self._source(given)))
            except _MISREAD as problem:
                rows[DUPLICATES.name] += _unreadable(bundle_key, given, problem)
        owners = self._owners(read)
        for bundle in read:
            try:
                trajectories, duplicates = bundle.rows(owners)
            except _MISREAD as problem:
                rows[DUPLICATES.name] += _unreadable(bundle.bundle_key, bundle.records, problem)
                continue
            rows[TRAJECTORIES.name] += trajectories
            rows[DUPLICATES.name] += duplicates
        made = rows[TRAJECTORIES.name]
        requests = signatures([row.pop("request") for row in made], Making.of(self.workspace.config.groups))
        for row, signature in zip(made, requests, strict=True):
            row["request_signature"] = signature
        rows[TRAJECTORIES.name].sort(key=lambda row: row["trajectory_id"])
        rows[DUPLICATES.name].sort(key=lambda row: row["record_id"])
        return rows

    def _owners(self, read: Sequence[_Read]) -> dict[str, dict[str, str]]:
        """trajectory_id -> {id of an answer: the trajectory of another bundle that owns it}."""
        made = [claim for bundle in read for claim in bundle.claimed()]
        if not made:
            return {}
        asked = pa.table({"bundle_key": pa.array([bundle.bundle_key for bundle in read], pa.string())})
        tables = {"made": pa.Table.from_pylist(made, schema=_CLAIMS), "asked": asked}
        owners: dict[str, dict[str, str]] = {}
        for row in self.workspace.queries.run("trajectories/owners", tables=tables).to_pylist():
            owners.setdefault(row["trajectory_id"], {})[row["call_id"]] = row["owner_id"]
        return owners

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


def _unreadable(bundle_key: str, records: Sequence[Mapping[str, Any]], problem: Exception) -> list[dict[str, Any]]:
    """Rows of duplicates for a bundle that its parser cannot read."""
    parser_version = registry.by_name(records[0]["format"]).parser_version
    detail = f"{type(problem).__name__}: {problem}"[:300]
    return [_duplicate(record, bundle_key, None, UNREADABLE, parser_version, detail=detail) for record in records]


def _duplicate(
    record: Mapping[str, Any],
    bundle_key: str,
    trajectory: Mapping[str, Any] | None,
    kind: str,
    parser_version: int,
    *,
    detail: str | None = None,
) -> dict[str, Any]:
    return {
        "record_id": record["record_id"],
        "bundle_key": bundle_key,
        "trajectory_id": None if trajectory is None else trajectory["trajectory_id"],
        "kind": kind,
        "detail": detail,
        "similarity": 1.0 if kind == "exact" else None,
        "parser_version": parser_version,
        "day": record["day"] if trajectory is None else trajectory["day"],
    }


class _Read:
    """The attempts of a bundle, with the identities that redaction must not move.

    `records`: rows of sql/trajectories/bundles.sql, whatever parser version landed them; `source` the configured source of
    their log, None where there is none. Raises one of _MISREAD where the parser cannot read them.
    """

    def __init__(
        self,
        workspace: Workspace,
        rules: TaskRules,
        bundle_key: str,
        records: Sequence[Mapping[str, Any]],
        source: SourceConfig | None,
    ) -> None:
        self.identity, self.bundle_key, self.source, self.rules = workspace.identity, bundle_key, source, rules
        self.records = records
        standing = [record for record in records if record["record_id"] == record["stands"]]
        self.format = registry.by_name(records[0]["format"])
        self.days = {record["record_id"]: record["day"] for record in standing}
        self.known: dict[tuple[str, bytes], str] = {}
        """Identity before redaction of tools, task ids and snapshots, by what they read like now."""
        values: dict[str, StoredValue] = {}
        self.bundle = _that_say_something(self.format.attempts([self._stored(record, values) for record in standing]))
        self._check()
        self.names = {
            attempt.ref: rules.names(attempt, [values[record_id] for record_id in self._told_of(attempt)], source)
            for attempt in self.bundle.attempts
        }
        for attempt in self.bundle.attempts:
            for turn in attempt.turns:
                turn.setdefault("id", turn_id(self.identity, turn))
                if rules.naming.masks and "masked_id" not in turn:
                    turn["masked_id"] = masked_id(self.identity, rules.naming.masks, turn, turn["id"])
        self.claims = [claims_of(self.format, attempt) for attempt in self.bundle.attempts]

    def _told_of(self, attempt: Attempt) -> list[str]:
        """The records that rules look at: the attempt's own in its order, then those that show it (a trace's header, a span
        around its calls).
        """
        shown = sorted(record_id for record_id, why in self.bundle.left.items() if why == (attempt.ref, SHOWN))
        return [*dict.fromkeys(attempt.record_ids), *shown]

    def claimed(self) -> list[dict[str, Any]]:
        """Rows of _CLAIMS: the attempts with ids by which copies of their answers are known."""
        return [
            {
                "trajectory_id": self._trajectory_id(attempt.ref),
                "bundle_key": self.bundle_key,
                "format": self.format.name,
                "started_at": attempt.started_at,
                "ended_at": attempt.ended_at,
                "call_ids": claims.ids,
            }
            for attempt, claims in zip(self.bundle.attempts, self.claims, strict=True)
            if claims.by_turn
        ]

    def rows(self, owners: Mapping[str, Mapping[str, str]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Rows of trajectories and of duplicates that the records are; `owners` of answers that other bundles own."""
        copies = Counter(record["stands"] for record in self.records)
        trajectories, own = [], list[Attempt]()
        for attempt, claims in zip(self.bundle.attempts, self.claims, strict=True):
            foreign = owners.get(self._trajectory_id(attempt.ref), {})
            left, parent = without_copied(attempt, claims, foreign)
            own.append(left)
            row = self._row(left, copies)
            if parent is not None:
                row["parent_trajectory_id"] = parent
            copied = sorted(foreign)
            told = {"call_ids": claims.ids, "copied_call_ids": copied, "copied_from": [foreign[found] for found in copied]}
            trajectories.append(row | told)
        own_claims = [[found for found in row["call_ids"] if found not in row["copied_call_ids"]] for row in trajectories]
        for row, names in zip(trajectories, shared_answers(self.identity, self.format.name, own, own_claims), strict=True):
            row["shared_answers"] = names
        by_record = {record_id: row for row in trajectories for record_id in row["record_ids"]}
        by_ref = {attempt.ref: row for attempt, row in zip(self.bundle.attempts, trajectories, strict=True)}
        duplicates = []
        for record in self.records:
            record_id = record["record_id"]
            if record_id in by_record:
                continue
            if record_id in self.bundle.left:
                ref, kind = self.bundle.left[record_id]
                stands_for = by_ref[ref] if ref is not None else None
            else:  # a copy of one that stands, whatever became of that
                kind = "exact"
                ref = self.bundle.left.get(record["stands"], (None, ""))[0]
                stands_for = by_record.get(record["stands"]) or (by_ref[ref] if ref is not None else None)
            duplicates.append(_duplicate(record, self.bundle_key, stands_for, kind, self.format.parser_version))
        return trajectories, duplicates

    def _row(self, attempt: Attempt, copies: Mapping[str, int]) -> dict[str, Any]:
        """One row of trajectories without what copies say, with the text of its request (`request`) instead of its signature; `copies` says how often each record stands in the log."""
        source = self.source
        harness = (source.harness if source else None) or attempt.harness or self.format.name
        policy_version = attempt.policy_version
        if policy_version is None and source is not None and attempt.model is not None:
            policy_version = source.policies.get(attempt.model)
        outcome_range = (source.outcome_range if source else None) or attempt.outcome_range
        system, request = asked(attempt.turns)
        task_source, task_id, task_key = self._task(attempt, harness, request)
        context_key = self.identity.context_key(
            [_masked_id(turn) for turn in system],
            None if attempt.tools is None else self._known("tools", attempt.tools),
            None if attempt.snapshot is None else self._known("snapshot", attempt.snapshot),
        )
        one_record = attempt.record_ids[0] if len(attempt.record_ids) == 1 else None
        return {
            "trajectory_id": self._trajectory_id(attempt.ref),
            "bundle_key": self.bundle_key,
            "day": max(self.days[record_id] for record_id in attempt.record_ids),
            "format": self.format.name,
            "parser_version": self.format.parser_version,
            "harness": harness,
            "task_id": task_id,
            "task_source": task_source,
            "task_key": task_key,
            "context_key": context_key,
            "run_key": self._run_key(attempt, harness),
            "task_rules": self.rules.fingerprint,
            "content_id": self.identity.of("content", canonical_json(said(attempt.turns))),
            "attempt": attempt.attempt,
            "purpose": attempt.purpose,
            "policy_family": family_of(policy_version, attempt.model),
            "policy_version": policy_version,
            "model": attempt.model,
            "turns": canonical_json([_stored_turn(turn) for turn in attempt.turns]).decode(),
            "calls": canonical_json(attempt.calls).decode(),
            "tools": None if attempt.tools is None else canonical_json(attempt.tools).decode(),
            "request": request_text(request),
            "num_turns": len(attempt.turns),
            "num_sampled_turns": attempt.num_sampled_turns,
            "num_sampled_tokens": attempt.num_sampled_tokens,
            "exact_tokens": attempt.exact_tokens,
            "known_ids": "logged" if attempt.logged_ids else None,
            "truncated": attempt.truncated,
            "outcome": units(attempt.outcome, outcome_range),
            "outcome_logged": attempt.outcome,
            "outcome_source": attempt.outcome_source,
            "fault": attempt.fault,
            "started_at": attempt.started_at,
            "ended_at": attempt.ended_at,
            "parent_trajectory_id": None if attempt.parent_ref is None else self._trajectory_id(attempt.parent_ref),
            "link": attempt.link,
            "parent_tool_call_id": attempt.parent_tool_call_id,
            "num_shared_turns": attempt.num_shared_turns,
            "num_gaps": attempt.num_gaps,
            "num_identical": copies[one_record] if one_record is not None else 1,
            "num_prompt_tokens": attempt.num_prompt_tokens,
            "num_reply_tokens": attempt.num_reply_tokens,
            "cost_usd": attempt.cost_usd,
            "record_ids": attempt.record_ids,
        }

    def _stored(self, record: Mapping[str, Any], values: dict[str, StoredValue]) -> StoredRecord:
        value = orjson.loads(record["raw"])
        spelled = self.format.spell(value)
        stored = None if record["identities"] is None else orjson.loads(record["identities"])
        found = with_identities(self.identity, spelled, stored, self.rules.naming)
        values[record["record_id"]] = StoredValue(value, stored)
        for name, said_now in (("tools", spelled.tools), ("task_id", spelled.task_id), ("snapshot", spelled.snapshot)):
            if said_now is not None and found[name] is not None:
                self.known[name, canonical_json(said_now)] = found[name]
        return StoredRecord(
            record_id=record["record_id"],
            value=value,
            spelled=spelled,
            source=record["source"],
            day=record["day"],
            byte_start=record["byte_start"],
        )

    def _task(self, attempt: Attempt, harness: str, request: Sequence[Mapping[str, Any]]) -> tuple[str, str | None, str]:
        """What named an attempt's task (reasons.TASK_SOURCES), its name, its key."""
        if attempt.task_id is not None:
            named = self._known("task_id", attempt.task_id)
            return LOG, attempt.task_id, self.identity.named_task_key(harness, named)
        name = self.names[attempt.ref].task
        if name is not None and name.name_id is not None:
            return RULE, name.text, self.identity.named_task_key(harness, name.name_id)
        # a log of answers alone does not say what was asked: strangers must not become siblings
        unasked = () if request else (self._trajectory_id(attempt.ref),)
        task_key = self.identity.request_task_key(harness, [*(_masked_id(turn) for turn in request), *unasked])
        return REDACTED if name is not None else REQUEST if request else NOTHING, None, task_key

    def _run_key(self, attempt: Attempt, harness: str) -> str | None:
        run = self.names[attempt.ref].run
        if run is None:
            return None
        # of a run whose name is gone nobody knows which other attempts belong to it
        return self.identity.run_key(harness, run.name_id or self._trajectory_id(attempt.ref))

    def _known(self, name: str, said_now: Any) -> str:
        held = self.known.get((name, canonical_json(said_now)))
        if held is not None:
            return held
        return self.identity.tools_id(said_now) if name == "tools" else self.identity.name_id(said_now)

    def _trajectory_id(self, ref: str) -> str:
        return self.identity.of("trajectory", self.bundle_key, ref)

    def _check(self) -> None:
        """A parser that loses a record, or makes two attempts of one name, is found here and not in a table."""
        attempts = self.bundle.attempts
        refs = [attempt.ref for attempt in attempts]
        if len(set(refs)) != len(refs):
            raise ValueError(f"{self.format.name} gave two attempts of a bundle one name")
        unknown = {attempt.parent_ref for attempt in attempts} - {*refs, None}
        if unknown:
            raise ValueError(f"{self.format.name} names a parent that is not there: {unknown.pop()}")
        placed = {record_id for attempt in attempts for record_id in attempt.record_ids}
        if placed & self.bundle.left.keys() or placed | self.bundle.left.keys() != self.days.keys():
            raise ValueError(f"{self.format.name} left records of a bundle without a place, or gave them two")
        if any(not attempt.record_ids for attempt in attempts):
            raise ValueError(f"{self.format.name} made an attempt of no record")


def _that_say_something(bundle: Bundle) -> Bundle:
    """The bundle without the attempts that hold no turn: there is nothing to compare or to learn from, whatever the format."""
    silent = {attempt.ref for attempt in bundle.attempts if not attempt.turns}
    if not silent:
        return bundle
    left = {record_id: (None if ref in silent else ref, kind) for record_id, (ref, kind) in bundle.left.items()}
    attempts: list[Attempt] = []
    for attempt in bundle.attempts:
        if attempt.ref in silent:
            left.update({record_id: (None, NO_TURNS) for record_id in attempt.record_ids})
        else:
            attempts.append(dataclasses.replace(attempt, parent_ref=None) if attempt.parent_ref in silent else attempt)
    placed = {
        record_id for attempt in attempts for record_id in attempt.record_ids
    }  # of several attempts, where it is one of more
    return Bundle(attempts=attempts, left={record_id: why for record_id, why in left.items() if record_id not in placed})


def family_of(policy_version: str | None, model: str | None) -> str:
    """The policy's name without its version, else the model's name, else `unknown`."""
    if policy_version is not None:
        return policy_version.partition("@")[0]
    return model or UNKNOWN_POLICY


def said(turns: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What makes two attempts equal: who said what and thought what, and what the policy wrote."""
    return [[turn["id"], turn.get("reasoning_id"), turn["sampled"]] for turn in turns]


def _stored_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in turn.items() if name not in INTERNAL}


def _masked_id(turn: Mapping[str, Any]) -> str:
    """Who said what, without what the workspace declares volatile."""
    return turn.get("masked_id") or turn["id"]
