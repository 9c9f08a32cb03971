"""One attempt that several logs tell: what each of them says of it in small columns, and what the one that is kept takes over.

A gateway and the harness behind it, a trace and a session file log one attempt twice. The only evidence is the ids of
answers: a server's id of an answer, or random ids of its tool calls, standing at an answer that says the same. Equal text at
about the same time is none, since n attempts at temperature 0 that run side by side look just so, and a wrong merge loses an
honest attempt. What the ids say is worked out in SQL over trajectories/rollouts (sql/trajectories/resolved.sql), whose rows
depend on their own bundle alone, so that neither order of arrival nor a kill matters.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds

from pipelines.ids import Identity, canonical_json
from pipelines.landing.copied import Claims
from pipelines.landing.format import Attempt
from pipelines.schemas import ROLLOUTS
from pipelines.tasks import LOG, RULE
from pipelines.workspace import Workspace

SMALL = [name for name in ROLLOUTS.schema.names if name != "facts"]
"""Columns that say whether two rollouts are one attempt."""

_UNKNOWN = datetime.datetime.fromtimestamp(0, datetime.UTC)

_TASK = ("task_source", "task_id", "task_key", "harness", "attempt")
_TOGETHER = (
    ("run_key",),
    ("model", "policy_version", "policy_family"),
    ("num_prompt_tokens", "num_reply_tokens", "cost_usd"),
    ("started_at", "ended_at"),
)
"""Facts that are of one log, by the first of which it is known whether a log has them."""

_OUTCOME = ("outcome_logged", "outcome", "outcome_source")
_PURPOSES = ("production", "top_up", "evaluation")
"""Whoever knows that an attempt was run for an evaluation is right: other logs cannot know it."""

_FACTS = (*_TASK, *(name for names in _TOGETHER for name in names), *_OUTCOME, "fault", "purpose", "truncated")


@dataclass(frozen=True, kw_only=True)
class Other:
    """A rollout that tells the same attempt as the one that is kept."""

    trajectory_id: str
    told_id: str
    facts: dict[str, Any]
    same_end: bool
    """It tells the end of the attempt, so its outcome is the attempt's."""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """What all logs together say of one rollout."""

    owners: dict[str, str] = field(default_factory=dict)
    """Names of answers that others own -> the trajectory that owns each."""
    keeper_id: str | None = None
    """The trajectory that stands for it; None: it is one itself."""
    kind: str = ""
    similarity: float | None = None
    others: list[Other] = field(default_factory=list)
    """Rollouts that it stands for, the best first."""


def rollout(
    identity: Identity,
    attempt: Attempt,
    row: Mapping[str, Any],
    claims: Claims,
    names: Mapping[int, Sequence[str]],
    *,
    named_itself: bool,
) -> dict[str, Any]:
    """A row of trajectories/rollouts; `row` is the attempt's row of trajectories as if there were no other log.

    `named_itself`: its format gives every attempt an id of its own, so that two of them are never one whatever they say.
    """
    turn_of: dict[str, int] = {}
    for number, of_turn in sorted(names.items()):
        for name in of_turn:
            turn_of.setdefault(name, number)
    ordered = list(dict.fromkeys([*claims.ids, *turn_of]))
    sampled = [number for number, turn in enumerate(attempt.turns) if turn["sampled"]]
    last = names.get(sampled[-1]) if sampled else None
    attempt_key = None if named_itself else _attempt_key(identity, attempt, row)
    facts = canonical_json({name: _plain(row[name]) for name in _FACTS})
    return {
        **{name: row[name] for name in ("trajectory_id", "bundle_key", "day", "format", "started_at", "ended_at")},
        **{name: row[name] for name in ("exact_tokens", "num_turns", "num_sampled_turns")},
        "has_outcome": row["outcome_logged"] is not None,
        "has_model": row["model"] is not None or row["policy_version"] is not None,
        "is_open": bool(attempt.turns)
        and (attempt.turns[-1]["role"] != "assistant" or bool(attempt.turns[-1].get("tool_calls"))),
        "names": ordered,
        "num_unique": len(claims.ids),
        "name_turns": [turn_of[name] for name in ordered],
        "last_turn": turn_of[last[0]] if last else None,
        "answer_times": [attempt.turns[number].get("logged_at") or _UNKNOWN for number in sampled],
        "attempt_key": attempt_key,
        "prefixes": [] if attempt_key is None else _prefixes(identity, attempt),
        "facts": facts.decode(),
        "told_id": identity.of("told", facts),
    }


def resolve(workspace: Workspace, made: Sequence[Mapping[str, Any]], bundle_keys: Collection[str]) -> dict[str, Resolved]:
    """What all logs together say of the rollouts in `made`, those of `bundle_keys` as their records are now; by trajectory id.

    Read are the stored rollouts that share a name with them, or with one that does, and so on: mostly none.
    """
    rows = pa.Table.from_pylist([dict(row) for row in made], schema=ROLLOUTS.schema)
    near = _near(workspace, rows.select(SMALL), bundle_keys)
    own = {row["trajectory_id"]: row for row in made}
    found = workspace.queries.run("trajectories/resolved", tables={"rollouts": near}).to_pylist()
    told = [row for row in found if row["trajectory_id"] in own]
    facts = _facts(workspace, {name for row in told for name in row["other_logs"]}, own)
    return {
        row["trajectory_id"]: Resolved(
            owners=dict(zip(row["copied_call_ids"], row["copied_from"], strict=True)),
            keeper_id=row["keeper_id"],
            kind=row["kind"] or "",
            similarity=row["similarity"],
            others=[
                Other(trajectory_id=name, told_id=told_id, same_end=not told_id.endswith("-"), facts=facts[name])
                for name, told_id in zip(row["other_logs"], row["other_told"], strict=True)
            ],
        )
        for row in told
    }


def behind(workspace: Workspace) -> list[dict[str, Any]]:
    """Bundles whose rows say otherwise than all rollouts together, as {bundle_key, num_bytes}: a log that tells of their attempts
    came later, changed, or is gone."""
    linked = workspace.queries.run("trajectories/linked")
    resolved = workspace.queries.run("trajectories/resolved", tables={"rollouts": linked})
    return workspace.queries.run("trajectories/misowned", tables={"resolved": resolved}).to_pylist()


def handed_over(row: dict[str, Any], others: Sequence[Other]) -> dict[str, Any]:
    """The row of a kept attempt with what only its other logs know, the best of them first.

    The task goes over from a log that names it where this one does not, or where only a rule of the workspace names this one's.
    Run, model, usage and times go over as a whole and only where this log has none. An outcome goes over from a log that
    tells the attempt's end; a fault only where no log has an outcome: what was scored had ended. An evaluation stays one, and what one log says was cut short was.
    """
    row = dict(row)
    for other in others:
        if _named(other.facts) > _named(row):
            row.update({name: other.facts[name] for name in _TASK})
        for names in _TOGETHER:
            if row[names[0]] is None and other.facts[names[0]] is not None:
                row.update({name: other.facts[name] for name in names})
        if row["outcome_logged"] is None and row["fault"] is None and other.same_end:
            row.update({name: other.facts[name] for name in _OUTCOME})
        row["truncated"] = row["truncated"] or (other.same_end and other.facts["truncated"])
        row["purpose"] = max(row["purpose"], other.facts["purpose"], key=_PURPOSES.index)
    scored = row["outcome_logged"] is not None or any(other.facts["outcome_logged"] is not None for other in others)
    if row["fault"] is None and not scored:
        row["fault"] = next((other.facts["fault"] for other in others if other.facts["fault"] and other.same_end), None)
    return row


def _named(told: Mapping[str, Any]) -> int:
    """How well a task is named: by the log, by a rule, or by what was asked."""
    return {LOG: 2, RULE: 1}.get(told["task_source"], 0)


def _near(workspace: Workspace, made: pa.Table, bundle_keys: Collection[str]) -> pa.Table:
    """`made` and the stored rollouts of other bundles that are connected with them by names or attempt keys."""
    found, known = made, set(bundle_keys)
    fresh = made
    while fresh.num_rows:
        wanted = fresh.select(["names", "attempt_key"])
        tables = {"wanted": wanted, "known": pa.table({"bundle_key": pa.array(sorted(known), pa.string())})}
        fresh = workspace.queries.run("trajectories/neighbours", tables=tables).select(SMALL).cast(found.schema)
        known.update(fresh.column("bundle_key").to_pylist())
        found = pa.concat_tables([found, fresh])
    return found


def _facts(workspace: Workspace, wanted: Collection[str], own: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    columns = ["trajectory_id", "facts"]
    stored = sorted(set(wanted) - own.keys())
    rows = workspace.lake.read(ROLLOUTS.name, columns, ds.field("trajectory_id").isin(stored)).to_pylist() if stored else []
    rows += [own[name] for name in wanted if name in own]
    return {row["trajectory_id"]: _read(row["facts"]) for row in rows}


def _attempt_key(identity: Identity, attempt: Attempt, row: Mapping[str, Any]) -> str | None:
    if row["task_id"] is None or row["attempt"] is None or row["started_at"] is None or attempt.link is not None:
        return None
    return identity.of("attempt", row["format"], row["harness"], row["task_key"], str(row["attempt"]), row["policy_family"])


def _prefixes(identity: Identity, attempt: Attempt) -> list[str]:
    found: list[str] = []
    for turn in attempt.turns:
        found.append(identity.of("turn", found[-1] if found else "", turn["id"], str(turn["sampled"])))
    return found


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.datetime) else value


def _read(facts: str) -> dict[str, Any]:
    told = orjson.loads(facts)
    for name in ("started_at", "ended_at"):
        told[name] = None if told[name] is None else datetime.datetime.fromisoformat(told[name])
    return told
