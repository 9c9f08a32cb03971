"""The rows that the records of one bundle are: its attempts as the log tells them, in uniform words, and what is left over.

Read once, a bundle gives its rollouts (same_attempt.py), which depend on its records alone; once all rollouts that share an
answer with them are known, it gives its rows of trajectories and duplicates.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from pipelines.config import SourceConfig
from pipelines.errors import NamingError
from pipelines.ids import canonical_json
from pipelines.landing import registry
from pipelines.landing.copied import Claims, claims_of, names_of, without_copied
from pipelines.landing.format import Attempt, Bundle, StoredRecord, asked, units
from pipelines.landing.moments import logged_at
from pipelines.landing.naming import masked_id
from pipelines.landing.same_attempt import Resolved, handed_over, rollout
from pipelines.landing.shared_answers import shared_answers
from pipelines.landing.spelling import turn_id, with_identities
from pipelines.signatures import request_text
from pipelines.tasks import INTERNAL, LOG, NOTHING, REDACTED, REQUEST, RULE, StoredValue, TaskRules
from pipelines.workspace import Workspace

UNREADABLE = "unreadable"
NO_TURNS = "no_turns"
SHOWN = "duplicate_view"
"""Kinds of duplicates (reasons.DUPLICATE_KINDS) that are told apart here."""

MISREAD = (ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, NamingError)
"""What a parser raises whose records are not what it takes them for, and a rule of the workspace that breaks over an attempt."""

UNKNOWN_POLICY = "unknown"
"""policy_family of attempts whose log names no model."""

_PRIVATE = frozenset({*INTERNAL, "logged_at"})
"""Keys of a turn that stage 2 reads and does not store."""


def unreadable(bundle_key: str, records: Sequence[Mapping[str, Any]], problem: Exception) -> list[dict[str, Any]]:
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
    similarity: float | None = None,
) -> dict[str, Any]:
    return {
        "record_id": record["record_id"],
        "bundle_key": bundle_key,
        "trajectory_id": None if trajectory is None else trajectory["trajectory_id"],
        "kind": kind,
        "detail": detail,
        "similarity": similarity,
        "parser_version": parser_version,
        "day": record["day"] if trajectory is None else trajectory["day"],
    }


class BundleRead:
    """The attempts of a bundle, with the identities that redaction must not move.

    `records`: rows of sql/trajectories/bundles.sql, whatever parser version landed them; `source` the configured source of
    their log, None where there is none. Raises one of MISREAD where the parser cannot read them.
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
        self.named = {
            attempt.ref: rules.names(attempt, [values[record_id] for record_id in self._told_of(attempt)], source)
            for attempt in self.bundle.attempts
        }
        """What rules of the workspace call an attempt's task and run."""
        for attempt in self.bundle.attempts:
            for turn in attempt.turns:
                turn.setdefault("id", turn_id(self.identity, turn))
                if rules.naming.masks and "masked_id" not in turn:
                    turn["masked_id"] = masked_id(self.identity, rules.naming.masks, turn, turn["id"])
        self.claims = [claims_of(self.format, attempt) for attempt in self.bundle.attempts]
        self.names = [
            _together(claims.by_turn, names_of(attempt))
            for attempt, claims in zip(self.bundle.attempts, self.claims, strict=True)
        ]
        self.copies = Counter(record["stands"] for record in records)
        """How often each record stands in the log."""
        self.told = [self._row(attempt) for attempt in self.bundle.attempts]
        """The attempts' rows as if there were no other log."""

    def _told_of(self, attempt: Attempt) -> list[str]:
        """The records that rules look at: the attempt's own in its order, then those that show it (a trace's header, a span
        around its calls).
        """
        shown = sorted(record_id for record_id, why in self.bundle.left.items() if why == (attempt.ref, SHOWN))
        return [*dict.fromkeys(attempt.record_ids), *shown]

    def rollouts(self) -> list[dict[str, Any]]:
        """Rows of trajectories/rollouts: the attempts as this log tells them, whatever others tell."""
        named_itself = getattr(self.format, "names_attempts", False)
        return [
            rollout(self.identity, attempt, row, claims, names, named_itself=named_itself)
            for attempt, row, claims, names in zip(self.bundle.attempts, self.told, self.claims, self.names, strict=True)
        ]

    def rows(self, resolved: Mapping[str, Resolved]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Rows of trajectories and of duplicates that the records are; `resolved` says by trajectory id what other logs tell of
        the same attempts."""
        trajectories, by_record, by_ref = [], {}, {}
        shared = self._shared_answers(resolved)
        for attempt, whole, claims, names in zip(self.bundle.attempts, self.told, self.claims, self.names, strict=True):
            said = resolved.get(whole["trajectory_id"], Resolved())
            if said.keeper_id is not None:
                stands = {"trajectory_id": said.keeper_id, "day": whole["day"], "kind": said.kind, "similarity": said.similarity}
                by_ref[attempt.ref] = stands
                for record_id in attempt.record_ids:
                    by_record.setdefault(record_id, stands)
                continue
            row = whole
            if said.owners:
                left, parent = without_copied(attempt, Claims(names), said.owners)
                row = self._row(left)
                if parent is not None:
                    row["parent_trajectory_id"] = parent
            row = handed_over(row, said.others)
            row["shared_answers"] = shared[attempt.ref]
            row["call_ids"] = claims.ids
            row["copied_call_ids"] = sorted(said.owners)
            row["copied_from"] = [said.owners[found] for found in sorted(said.owners)]
            row["other_logs"] = [other.trajectory_id for other in said.others]
            row["other_told"] = [other.told_id for other in said.others]
            trajectories.append(row)
            by_ref[attempt.ref] = row
            by_record.update(dict.fromkeys(attempt.record_ids, row))
        refs = {self._trajectory_id(ref): row["trajectory_id"] for ref, row in by_ref.items()}
        for row in trajectories:  # a subagent's parent may be told by another log
            row["parent_trajectory_id"] = refs.get(row["parent_trajectory_id"], row["parent_trajectory_id"])
        return trajectories, self._duplicates(by_record, by_ref)

    def _shared_answers(self, resolved: Mapping[str, Resolved]) -> dict[str, list[str] | None]:
        """Of all attempts, also those that another log tells: what names a sibling must not hang on them."""
        own, own_claims = list[Attempt](), list[list[str]]()
        for attempt, row, claims, names in zip(self.bundle.attempts, self.told, self.claims, self.names, strict=True):
            owners = resolved.get(row["trajectory_id"], Resolved()).owners
            own.append(without_copied(attempt, Claims(names), owners)[0] if owners else attempt)
            own_claims.append([found for found in claims.ids if found not in owners])
        found = shared_answers(self.identity, self.format.name, own, own_claims)
        return {attempt.ref: names for attempt, names in zip(self.bundle.attempts, found, strict=True)}

    def _duplicates(self, by_record: Mapping[str, dict[str, Any]], by_ref: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
        duplicates = []
        for record in self.records:
            record_id = record["record_id"]
            if (row := by_record.get(record_id)) is not None:
                if "kind" in row:  # of an attempt that another log tells
                    duplicates.append(self._left(record, row, row["kind"], row["similarity"]))
                continue
            if record_id in self.bundle.left:
                ref, kind = self.bundle.left[record_id]
                stands_for = by_ref[ref] if ref is not None else None
            else:  # a copy of one that stands, whatever became of that
                kind = "exact"
                ref = self.bundle.left.get(record["stands"], (None, ""))[0]
                stands_for = by_record.get(record["stands"]) or (by_ref[ref] if ref is not None else None)
            duplicates.append(self._left(record, stands_for, kind, 1.0 if kind == "exact" else None))
        return duplicates

    def _left(
        self, record: Mapping[str, Any], stands_for: Mapping[str, Any] | None, kind: str, similarity: float | None
    ) -> dict[str, Any]:
        return _duplicate(record, self.bundle_key, stands_for, kind, self.format.parser_version, similarity=similarity)

    def _row(self, attempt: Attempt) -> dict[str, Any]:
        """One row of trajectories without what other logs say, with the text of its request (`request`) instead of its signature."""
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
            "num_identical": self.copies[one_record] if one_record is not None else 1,
            "num_prompt_tokens": attempt.num_prompt_tokens,
            "num_reply_tokens": attempt.num_reply_tokens,
            "cost_usd": attempt.cost_usd,
            "record_ids": attempt.record_ids,
        }

    def _stored(self, record: Mapping[str, Any], values: dict[str, StoredValue]) -> StoredRecord:
        value = orjson.loads(record["raw"])
        spelled = self.format.spell(value)
        at = logged_at(value)
        for turn in spelled.turns:
            turn["logged_at"] = at
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
        name = self.named[attempt.ref].task
        if name is not None and name.name_id is not None:
            return RULE, name.text, self.identity.named_task_key(harness, name.name_id)
        # a log of answers alone does not say what was asked: strangers must not become siblings
        unasked = () if request else (self._trajectory_id(attempt.ref),)
        task_key = self.identity.request_task_key(harness, [*(_masked_id(turn) for turn in request), *unasked])
        return REDACTED if name is not None else REQUEST if request else NOTHING, None, task_key

    def _run_key(self, attempt: Attempt, harness: str) -> str | None:
        run = self.named[attempt.ref].run
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


def _together(claims: Mapping[int, Sequence[str]], names: Mapping[int, Sequence[str]]) -> dict[int, list[str]]:
    return {turn: list(dict.fromkeys([*claims.get(turn, ()), *names.get(turn, ())])) for turn in sorted({*claims, *names})}


def family_of(policy_version: str | None, model: str | None) -> str:
    """The policy's name without its version, else the model's name, else `unknown`."""
    if policy_version is not None:
        return policy_version.partition("@")[0]
    return model or UNKNOWN_POLICY


def said(turns: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What makes two attempts equal: who said what and thought what, and what the policy wrote."""
    return [[turn["id"], turn.get("reasoning_id"), turn["sampled"]] for turn in turns]


def _stored_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in turn.items() if name not in _PRIVATE}


def _masked_id(turn: Mapping[str, Any]) -> str:
    """Who said what, without what the workspace declares volatile."""
    return turn.get("masked_id") or turn["id"]
