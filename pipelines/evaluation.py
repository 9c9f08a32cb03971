"""Reads: the held-out (or audit) tasks, a checkpoint's adapter. Writes: evaluation/results, logs/evaluation-<night>.jsonl. Next: monitors.

The user's harness answers the same tasks under the challenger and under the champion, with the same seed per task and
attempt, over the same recording door as production; the lines carry the purpose `evaluation` and land like any others,
but never reach a batch (I8). An answer is measured once: results are found again by checkpoint, set and set hash, so
that the champion is not asked again every night. A failure of harness or verifier is a reason and no score (I11).
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipelines import chain, checkpoints
from pipelines import statistics as gate_statistics
from pipelines.ids import plain_hash
from pipelines.landing.format import units
from pipelines.reports import Evaluated
from pipelines.rewards import verifiers
from pipelines.schemas import EVALUATION
from pipelines.workspace import Workspace

if TYPE_CHECKING:
    from pipelines.harness import Rollout

HELD_OUT, AUDIT = "held_out", "audit"

Clock = Callable[[], datetime.datetime]


@dataclass(frozen=True)
class EvalSet:
    """A frozen set of tasks with everything that makes two policies' answers to it comparable."""

    name: str
    """held_out | audit."""
    tasks: dict[str, dict[str, Any]]
    """Task by task_key."""
    set_hash: str
    """Of the tasks, the verifiers, what passes, the temperature and the harness's code: a change of any of them starts anew."""

    @property
    def seed(self) -> int:
        """Seed of the rollouts, the same for every policy and night."""
        return int(self.set_hash[:8], 16)


def load_set(workspace: Workspace, name: str) -> EvalSet | None:
    """The configured set; None where the workspace has none, or no harness to run it with. HarnessError for a bad file."""
    from pipelines import harness

    config = workspace.config
    path = config.evaluation.held_out if name == HELD_OUT else config.evaluation.audit
    if path is None or config.harness.entry is None:
        return None
    listed = harness.read_tasks(workspace.path(path))
    tasks = {workspace.identity.task_key(config.harness.name, str(task["task_id"])): task for task in listed}
    code = workspace.path(config.harness.entry.partition(":")[0])
    described = {
        "tasks": sorted(listed, key=lambda task: str(task["task_id"])),
        "verifiers": sorted(verifier.verifier_hash for verifier in verifiers.load(workspace)),
        "pass_at": config.rewards.pass_at,
        "temperature": config.policy.temperature,
        "harness": [config.harness.entry, hashlib.sha256(code.read_bytes()).hexdigest() if code.is_file() else None],
    }
    return EvalSet(name, tasks, plain_hash(described))


def evaluate(workspace: Workspace, night: str, *, clock: Clock | None = None) -> Evaluated:
    """Measure the night's challenger and the champion on the held-out tasks; what was measured before is reused.

    `clock` gives the times of the recorded lines; None: `dated(night)`. Nothing trained, no harness or no set is a normal result.
    """
    challenger = checkpoints.of_night(workspace, night)
    if challenger is None:
        champion = chain.champion(workspace)
        return _nothing(champion, None, HELD_OUT, f"night {night} trained no checkpoint, so there is nobody to measure")
    champion = chain.opponent(workspace, challenger.checkpoint_id)
    return compare(workspace, challenger, champion, night, clock=clock)


def compare(
    workspace: Workspace, challenger: chain.Policy, champion: chain.Policy, night: str, *, clock: Clock | None = None
) -> Evaluated:
    """Measure two policies on the held-out tasks; `night` names the log and stands in the new rows."""
    asked = load_set(workspace, HELD_OUT)
    if asked is None:
        return _nothing(champion, challenger.checkpoint_id, HELD_OUT, _why_no_set(workspace, HELD_OUT))
    reused = _measure(workspace, asked, [challenger, champion], night, clock)
    return _evaluated(workspace, asked, challenger, champion, reused)


def audit(workspace: Workspace, checkpoint_id: str, night: str, *, clock: Clock | None = None) -> Evaluated:
    """Measure one policy (`base` for the base model) on the audit tasks, which neither gate nor monitors read."""
    policy = chain.policy(workspace, checkpoint_id)
    asked = load_set(workspace, AUDIT)
    if asked is None:
        return _nothing(chain.champion(workspace), checkpoint_id, AUDIT, _why_no_set(workspace, AUDIT))
    reused = _measure(workspace, asked, [policy], night, clock)
    return _evaluated(workspace, asked, policy, None, reused)


def pass_rate(workspace: Workspace, checkpoint_id: str, eval_set: str = HELD_OUT) -> gate_statistics.Rate | None:
    """A policy's stored pass rate on a set with its 95% interval over tasks; None where nothing was measured."""
    asked = load_set(workspace, eval_set)
    rates = [] if asked is None else [row["pass_rate"] for row in _rates(workspace, asked, checkpoint_id) if row["num_scored"]]
    if not rates or asked is None:
        return None
    draws = workspace.config.evaluation.bootstrap_draws
    return gate_statistics.rate_interval(rates, draws=draws, seed=gate_statistics.seed_of(checkpoint_id, asked.set_hash))


def paired(workspace: Workspace, asked: EvalSet, challenger_id: str, champion_id: str) -> list[dict[str, Any]]:
    """Per task that both have a score for: task_key, num_attempts, challenger_passes, champion_passes; by task_key."""
    parameters = {
        "challenger": challenger_id,
        "champion": champion_id,
        "eval_set": asked.name,
        "eval_set_hash": asked.set_hash,
    }
    return workspace.queries.run("evaluation/paired", parameters).to_pylist()


def num_answers(workspace: Workspace, asked: EvalSet, checkpoint_id: str) -> int:
    """Stored answers of a policy to a set, failures included."""
    return sum(row["num_answers"] for row in _rates(workspace, asked, checkpoint_id))


def dated(night: str) -> Clock:
    """The clock of a night's rollouts: now, where it runs on its day or the day after, as nights do.

    Any other night (run much later, or under a clock of its own, as in the demo) is dated from 23:00 of its day on, so
    that its answers land in its own partition.
    """
    began = datetime.datetime.now(datetime.UTC)
    day = datetime.date.fromisoformat(night)
    if began.date() - day in (datetime.timedelta(0), datetime.timedelta(days=1)):
        return lambda: datetime.datetime.now(datetime.UTC)
    evening = datetime.datetime.combine(day, datetime.time(23), datetime.UTC)
    return lambda: evening + (datetime.datetime.now(datetime.UTC) - began)


def _measure(workspace: Workspace, asked: EvalSet, policies: Sequence[chain.Policy], night: str, clock: Clock | None) -> int:
    """Have the missing answers made and stored; returns how many were there."""
    missing = {policy.checkpoint_id: _missing(workspace, asked, policy.checkpoint_id) for policy in policies}
    reused = sum(num_answers(workspace, asked, policy.checkpoint_id) for policy in policies)
    if not any(missing.values()):
        return reused
    from pipelines import harness
    from pipelines.doors.engine import engine

    log = workspace.folder / "logs" / f"evaluation-{night}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    with engine(workspace) as server:
        for policy in policies:
            tasks = [asked.tasks[key] for key in missing[policy.checkpoint_id]]
            if not tasks:
                continue
            rollouts = harness.run(
                workspace,
                tasks,
                purpose="evaluation",
                policy_version=policy.policy_version,
                attempts=workspace.config.evaluation.attempts,
                log=log,
                url=server.url,
                model=server.model_for(policy),
                seed=asked.seed,
                clock=clock or dated(night),
                tag=f"{asked.name}/{asked.set_hash}",  # answers to a changed set are new answers
            )
            workspace.lake.append_missing(EVALUATION.name, _rows(workspace, asked, policy, night, rollouts))
    return reused


def _rows(workspace: Workspace, asked: EvalSet, policy: chain.Policy, night: str, rollouts: Sequence[Rollout]) -> pa.Table:
    loaded = verifiers.load(workspace)
    rows = []
    for rollout in rollouts:
        verdict = verifiers.Verdict(None, f"fault: {rollout.fault}")
        if rollout.fault is None:
            outcome = units(rollout.outcome, (0.0, 1.0))
            verdict = verifiers.combined([verifier.verdict(rollout.task_id, rollout.turns, outcome) for verifier in loaded])
        rows.append(
            {
                "checkpoint_id": policy.checkpoint_id,
                "eval_set": asked.name,
                "eval_set_hash": asked.set_hash,
                "task_key": rollout.task_key,
                "task_id": rollout.task_id,
                "attempt": rollout.attempt,
                "score": verdict.score,
                "passed": None if verdict.score is None else verifiers.passes(workspace, verdict.score),
                "reason": verdict.reason,
                "num_sampled_tokens": rollout.num_sampled_tokens,
                "seconds": rollout.seconds,
                "attempt_id": rollout.attempt_id,
                "night": night,
            }
        )
    return pa.Table.from_pylist(rows, schema=EVALUATION.schema)


def _missing(workspace: Workspace, asked: EvalSet, checkpoint_id: str) -> list[str]:
    tasks = pa.table({"task_key": pa.array(asked.tasks, pa.string())})
    parameters = {
        "checkpoint_id": checkpoint_id,
        "eval_set": asked.name,
        "eval_set_hash": asked.set_hash,
        "num_attempts": workspace.config.evaluation.attempts,
    }
    return workspace.queries.run("evaluation/missing", parameters, tables={"asked": tasks}).column("task_key").to_pylist()


def _rates(workspace: Workspace, asked: EvalSet, checkpoint_id: str) -> list[dict[str, Any]]:
    parameters = {"checkpoint_id": checkpoint_id, "eval_set": asked.name, "eval_set_hash": asked.set_hash}
    return workspace.queries.run("evaluation/rates", parameters).to_pylist()


def _evaluated(
    workspace: Workspace, asked: EvalSet, challenger: chain.Policy, champion: chain.Policy | None, reused: int
) -> Evaluated:
    measured = {
        policy.checkpoint_id: _rates(workspace, asked, policy.checkpoint_id) for policy in (challenger, champion) if policy
    }
    version = workspace.lake.version(EVALUATION.name)
    return Evaluated(
        checkpoint_id=challenger.checkpoint_id,
        champion_id=(champion or chain.champion(workspace)).checkpoint_id,
        eval_set=asked.name,
        num_tasks=len(measured[challenger.checkpoint_id]),
        challenger_pass_rate=_mean(measured[challenger.checkpoint_id]),
        champion_pass_rate=None if champion is None else _mean(measured[champion.checkpoint_id]),
        failures=sum(row["num_failures"] for rows in measured.values() for row in rows),
        reused=reused,
        versions={} if version is None else {EVALUATION.name: version},
    )


def _mean(rates: list[dict[str, Any]]) -> float | None:
    scored = [row["pass_rate"] for row in rates if row["num_scored"]]
    return round(sum(scored) / len(scored), 12) if scored else None


def _nothing(champion: chain.Policy, checkpoint_id: str | None, eval_set: str, why: str) -> Evaluated:
    return Evaluated(
        checkpoint_id=checkpoint_id,
        champion_id=champion.checkpoint_id,
        eval_set=eval_set,
        num_tasks=0,
        challenger_pass_rate=None,
        champion_pass_rate=None,
        failures=0,
        reused=0,
        why_nothing=why,
    )


def _why_no_set(workspace: Workspace, name: str) -> str:
    if workspace.config.harness.entry is None:
        return "no harness is configured ([harness] entry), so no policy can be asked"
    return f"no {name} tasks are configured ([evaluation] {name})"
