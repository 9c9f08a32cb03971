"""Reads: evaluation/results, monitors/signals, checkpoints/checkpoints. Writes: promotion/decisions, MLflow's alias `champion`. Next: groups/wanted, tomorrow.

The gate: promote where the lower bound of the paired difference over held-out tasks is above 0, on enough tasks, and
nothing forbids it. Decisions are one line of history per policy: each is numbered, names whom it was measured against,
and is refused as stale where the champion has changed meanwhile. The last row names the champion (I13); the alias in
MLflow only follows, and a failure to set it is told and mended later, never undone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines import chain, checkpoints, evaluation
from pipelines import statistics as gate_statistics
from pipelines.doors.lake import Snapshot
from pipelines.errors import PromotionRefusedError, RegistryError, UnknownReferenceError
from pipelines.reports import Decided
from pipelines.schemas import DECISIONS
from pipelines.steps import reached
from pipelines.workspace import Workspace

PROMOTE, HOLD, ROLLBACK = "promote", "hold", "rollback"


@dataclass(frozen=True)
class Verdict:
    """What the gate says about a challenger against a champion; a function of stored rows alone."""

    decision: str
    """promote | hold."""
    reason: str
    """One of reasons.DECISION_REASONS."""
    challenger_pass_rate: float | None = None
    """Over the paired tasks, like the next two; None where nothing was paired."""
    champion_pass_rate: float | None = None
    difference: float | None = None
    lower_bound: float | None = None
    num_tasks: int = 0
    detail: str = ""
    """For people: which mark, which alarm."""


def gate(workspace: Workspace, challenger: chain.Policy, champion: chain.Policy, night: str) -> Verdict:
    """Measure and judge; `night` says whose alarms count.

    PromotionRefusedError where one of the two was never measured on the present set: that is no result, and no hold.
    """
    config = workspace.config.evaluation
    if workspace.config.harness.entry is None:
        return Verdict(HOLD, "no_harness")
    asked = evaluation.load_set(workspace, evaluation.HELD_OUT)
    if asked is None:
        return Verdict(HOLD, "too_few_tasks")
    for policy in (challenger, champion):
        if evaluation.num_answers(workspace, asked, policy.checkpoint_id) == 0:
            raise PromotionRefusedError(
                f"{policy.policy_version} was never measured on the held-out tasks as they are now; run the night again",
                checkpoint_id=policy.checkpoint_id,
            )
    rows = evaluation.paired(workspace, asked, challenger.checkpoint_id, champion.checkpoint_id)
    if not rows:
        return Verdict(HOLD, "too_few_tasks")
    measured = _measured(workspace, asked, challenger, champion, rows)
    if len(rows) < config.min_tasks:
        return replace(measured, reason="too_few_tasks")
    if measured.lower_bound is None or measured.lower_bound <= 0:
        return replace(measured, reason="not_better")
    marks = checkpoints.marks(workspace, challenger.checkpoint_id)
    if marks:
        return replace(measured, reason="marked", detail=", ".join(marks))
    alarms = workspace.queries.run("promotion/alarms", {"night": night}).column("signal").to_pylist()
    if alarms:
        return replace(measured, reason="alarm", detail=", ".join(alarms))
    return replace(measured, decision=PROMOTE, reason="better")


def decide(workspace: Workspace, night: str) -> Decided:
    """The night's decision, made once, and MLflow's alias after it.

    PromotionRefusedError where the champion changed since it was read; the same night run again measures against the new
    one. A night that trained nothing holds with `nothing_trained`, one row a night.
    """
    return _decided(workspace, *settle(workspace, night))


def settle(workspace: Workspace, night: str) -> tuple[dict[str, Any], bool]:
    """The night's row of `promotion/decisions`, and whether it was there before; touches nothing but the lake.

    A challenger that was decided on before keeps its decision.
    """
    challenger = checkpoints.of_night(workspace, night)
    champion = chain.champion(workspace)

    def earlier(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        if challenger is None:
            found = [row for row in rows if row["night"] == night and row["reason"] == "nothing_trained"]
        else:
            found = [row for row in rows if row["challenger"] == challenger.checkpoint_id]
        return found[-1] if found else None

    held = earlier(_decisions(workspace))
    if held is not None:
        return held, True
    verdict = Verdict(HOLD, "nothing_trained") if challenger is None else gate(workspace, challenger, champion, night)
    return _append(workspace, verdict, challenger, champion, night, earlier)


def promote(workspace: Workspace, version: int) -> Decided:
    """Promote a version by hand, through the same gate; what is not measured yet against the champion is measured first.

    PromotionRefusedError with the gate's reason where it says no.
    """
    known = [policy for policy in chain.policies(workspace).values() if policy.version == version]
    if not known or known[0].checkpoint_id == chain.BASE:
        what = (
            "is the base model; `nightshift rollback` goes back"
            if version == 0
            else "does not exist; see `nightshift checkpoints`"
        )
        raise UnknownReferenceError(f"version {version} of {workspace.config.policy.name} {what}")
    challenger, champion = known[0], chain.champion(workspace)
    if challenger.checkpoint_id == champion.checkpoint_id:
        raise PromotionRefusedError(
            f"{challenger.policy_version} is the champion already", checkpoint_id=challenger.checkpoint_id
        )
    night = checkpoints.night_of(workspace, challenger.checkpoint_id)
    evaluation.compare(workspace, challenger, champion, night)
    verdict = gate(workspace, challenger, champion, night)
    if verdict.decision != PROMOTE:
        raise PromotionRefusedError(
            f"the gate holds {challenger.policy_version}: {_spoken(verdict)}; {champion.policy_version} stays",
            checkpoint_id=challenger.checkpoint_id,
            reason=verdict.reason,
        )
    return _decided(workspace, *_append(workspace, replace(verdict, reason="by_hand"), challenger, champion, _today()))


def rollback(workspace: Workspace) -> Decided:
    """Back to the policy that the champion was promoted over, as a new row; called again, one further back."""
    champion = chain.champion(workspace)
    promoted = [
        row for row in _decisions(workspace) if row["decision"] == PROMOTE and row["challenger"] == champion.checkpoint_id
    ]
    if not promoted:
        raise PromotionRefusedError(
            f"{champion.policy_version} was never promoted over another policy: there is nothing to go back to"
        )
    target = chain.policy(workspace, promoted[-1]["measured_against"])
    return _decided(workspace, *_append(workspace, Verdict(ROLLBACK, "by_hand"), None, champion, _today(), after=target))


def repair_alias(workspace: Workspace) -> str | None:
    """Let MLflow's alias name the champion of the lake; None where it does, else in one line why it cannot.

    Cheap where nothing is to be mended and the registry is sqlite, which is looked at without importing MLflow.
    """
    champion, registry = chain.champion(workspace), checkpoints.registry(workspace)
    marker = _marker(workspace)
    try:
        if (registry.champion() or 0) != champion.version:
            registry.set_champion(champion.version)
        marker.write_text(_followed(workspace, champion), encoding="utf-8")
    except RegistryError as problem:
        marker.unlink(missing_ok=True)
        return str(problem)
    return None


def repair_alias_if_behind(workspace: Workspace) -> str | None:
    """`repair_alias` for the start of every command: asks a remote registry only where the last try is not known to hold."""
    champion, marker = chain.champion(workspace), _marker(workspace)
    if not checkpoints.registry(workspace).is_file and marker.exists():
        if marker.read_text(encoding="utf-8") == _followed(workspace, champion):
            return None
    elif champion.version == 0 and not marker.exists():
        return None  # nothing was ever promoted
    return repair_alias(workspace)


def _marker(workspace: Workspace) -> Path:
    return workspace.folder / ".alias"


def _followed(workspace: Workspace, champion: chain.Policy) -> str:
    return f"{workspace.registry_uri} {champion.policy_version}\n"


def _measured(
    workspace: Workspace,
    asked: evaluation.EvalSet,
    challenger: chain.Policy,
    champion: chain.Policy,
    rows: list[dict[str, Any]],
) -> Verdict:
    config = workspace.config.evaluation
    differences = [(row["challenger_passes"] - row["champion_passes"]) / row["num_attempts"] for row in rows]
    bound = gate_statistics.paired_bootstrap(
        differences,
        confidence=config.confidence,
        draws=config.bootstrap_draws,
        seed=gate_statistics.seed_of(challenger.checkpoint_id, champion.checkpoint_id, asked.set_hash),
    )
    rates = [
        sum(row[side] / row["num_attempts"] for row in rows) / len(rows) for side in ("challenger_passes", "champion_passes")
    ]
    return Verdict(HOLD, "not_better", rates[0], rates[1], bound.difference, bound.lower_bound, bound.num_tasks)


def _append(
    workspace: Workspace,
    verdict: Verdict,
    challenger: chain.Policy | None,
    champion: chain.Policy,
    night: str,
    earlier: Callable[[list[dict[str, Any]]], dict[str, Any] | None] = lambda _: None,
    *,
    after: chain.Policy | None = None,
) -> tuple[dict[str, Any], bool]:
    """Append the decision as the next number, or return the one that another process made meanwhile (`earlier`).

    `after` is the champion from now on; None: the challenger where promoted, else the champion as before.
    """
    if after is None:
        after = challenger if verdict.decision == PROMOTE and challenger is not None else champion
    made: list[tuple[dict[str, Any], bool]] = []

    def compute(snapshot: Snapshot) -> pa.Table | None:
        made.clear()
        rows = _sorted(snapshot.read(filter=pc.field("policy") == workspace.config.policy.name))
        held = earlier(rows)
        if held is not None:
            made.append((held, True))
            return None
        present = rows[-1]["champion"] if rows else chain.BASE
        if present != champion.checkpoint_id:
            raise PromotionRefusedError(
                f"this decision was measured against {champion.policy_version}, and meanwhile the champion has changed; "
                "run the same command again to measure against the new one",
                checkpoint_id=present,
            )
        row = {
            "number": (rows[-1]["number"] if rows else 0) + 1,
            "policy": workspace.config.policy.name,
            "decision": verdict.decision,
            "reason": verdict.reason,
            "challenger": None if challenger is None else challenger.checkpoint_id,
            "measured_against": champion.checkpoint_id,
            "champion": after.checkpoint_id,
            "challenger_pass_rate": verdict.challenger_pass_rate,
            "champion_pass_rate": verdict.champion_pass_rate,
            "difference": verdict.difference,
            "lower_bound": verdict.lower_bound,
            "confidence": workspace.config.evaluation.confidence,
            "num_tasks": verdict.num_tasks,
            "night": night,
            "decided_at": datetime.datetime.now(datetime.UTC),
        }
        made.append((row, False))
        return pa.Table.from_pylist([row], schema=DECISIONS.schema)

    workspace.lake.append_computed(DECISIONS.name, compute)
    reached("promotion:before_alias")
    return made[0]


def _decided(workspace: Workspace, row: dict[str, Any], reused: bool) -> Decided:
    version = workspace.lake.version(DECISIONS.name)
    return Decided(
        number=row["number"],
        decision=row["decision"],
        reason=row["reason"],
        challenger=row["challenger"],
        champion=row["champion"],
        policy_version=chain.policy(workspace, row["champion"]).policy_version,
        challenger_pass_rate=row["challenger_pass_rate"],
        champion_pass_rate=row["champion_pass_rate"],
        difference=row["difference"],
        lower_bound=row["lower_bound"],
        num_tasks=row["num_tasks"],
        reused=reused,
        alias_problem=repair_alias(workspace),
        versions={} if version is None else {DECISIONS.name: version},
    )


def _decisions(workspace: Workspace) -> list[dict[str, Any]]:
    return _sorted(workspace.lake.read(DECISIONS.name, filter=pc.field("policy") == workspace.config.policy.name))


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.sort_by("number").to_pylist()


def _spoken(verdict: Verdict) -> str:
    if verdict.difference is None or verdict.lower_bound is None:
        return f"{verdict.reason}, no held-out task was answered by both"
    measured = f"{verdict.difference:+.3f} on {verdict.num_tasks} tasks, lower bound {verdict.lower_bound:+.3f}"
    return f"{verdict.reason}{f' ({verdict.detail})' if verdict.detail else ''}, {measured}"


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()
