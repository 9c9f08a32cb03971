"""Reads: groups/groups, trajectories. Writes: rewards/verdicts, rewards/judgements, rewards/rewards. Next: batches.

Gives rewards to every sealed group of a task that may be trained on and that has none yet under the rubric and the
settings in force, and verdicts to attempts in no group that may be winners worth learning from (lane `sft`). Tables only grow (I10): another rubric, weight or verifier adds rows beside the old ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pipelines import progress
from pipelines.doors.judge import Ask
from pipelines.doors.lake import Snapshot
from pipelines.doors.queries import Kept, Only
from pipelines.groups import eligibility
from pipelines.groups.night_windows import night_windows
from pipelines.ids import plain_hash
from pipelines.reports import Scored
from pipelines.rewards.combine import Attempt, combine
from pipelines.rewards.judge import Judged, judge_groups
from pipelines.rewards.verifiers import Verifier, load, pass_mark
from pipelines.schemas import JUDGEMENTS, REWARDS, TRAJECTORIES, VERDICTS
from pipelines.workspace import Workspace
from trainer.contract import MIN_SPREAD, REWARD_UNIT

_STEP = 500
"""Verdicts between two commits: what a kill during a slow verifier may lose."""


def score(
    workspace: Workspace,
    night: str,
    *,
    rubric: str | None = None,
    day: str | None = None,
    door: AbstractContextManager[Ask] | None = None,
) -> Scored:
    """Stage 4 for a night (YYYY-MM-DD).

    `rubric`: name of another rubric than the one in force; `day`: only the groups that were sealed on that night, None: all;
    `door`: another judge than the configured one. VerifierError or ConfigError where a verifier cannot be loaded; a
    verifier that breaks on an attempt, or a judge that does not answer, is counted and leaves those without that score.
    """
    text, rubric_hash = workspace.rubric(rubric)
    verifiers = load(workspace)
    settings_key = settings_of(workspace, verifiers)
    parameters = {"rubric_hash": rubric_hash, "settings_key": settings_key, "sealed_night": day}
    # a backfill of one day is about its groups, wherever they lie
    only = {} if day is not None else night_windows(workspace, night).only
    awaiting = workspace.queries.run("rewards/awaiting", parameters, only=_with_anchors(workspace, only))
    checks = _checks(verifiers)
    alone = pa.table({}) if day is not None else _singles(workspace, eligibility(workspace, night, only=only))
    asked = pa.concat_tables([awaiting, alone]) if alone.num_rows else awaiting
    tables = {"checks": checks, "fallen": workspace.queries.run("rewards/fallen", only=only)}
    num_verdicts, num_failures = _verify(workspace, night, verifiers, {"awaiting": asked, **tables}, only)
    scored = workspace.queries.run("rewards/combined", tables={"awaiting": awaiting, **tables}, only=only)
    judged = judge_groups(workspace, night, rubric=text, rubric_hash=rubric_hash, awaiting=awaiting, scored=scored, door=door)
    rows = _rewards(workspace, night, rubric_hash, settings_key, scored, judged)
    added = REWARDS.schema.empty_table()

    def compute(snapshot: Snapshot) -> pa.Table:
        nonlocal added
        pinned = {REWARDS.name: snapshot.handle}
        of_windows = {REWARDS.name: Kept("window", frozenset(rows.column("window").unique().to_pylist()))}
        added = workspace.queries.into(REWARDS.name, "rewards/missing", tables={"made": rows}, pinned=pinned, only=of_windows)
        return added

    workspace.lake.append_computed(REWARDS.name, compute)
    return _report(workspace, added, judged, num_verdicts, num_failures, rubric_hash)


def settings_of(workspace: Workspace, verifiers: Sequence[Verifier] | None = None) -> str:
    """First half of every reward_key: what decides rewards besides the scores. Changing it back brings the old rows back."""
    rewards = workspace.config.rewards
    settings = {
        "rule": rewards.rule,
        "judge_weight": rewards.judge_weight,
        "pass_at": rewards.pass_at,
        "verifiers": sorted(verifier.verifier_hash for verifier in (load(workspace) if verifiers is None else verifiers)),
        "calibration_id": None,
    }
    return plain_hash(settings)[:16] + "."


def agreement(workspace: Workspace, scores: pa.Table) -> tuple[float | None, int]:
    """Share of sibling pairs with different verdicts that the judge orders as the tests do, and how many pairs there are.

    `scores`: group_id, verifier_score, ruler_score. A tie counts half; None where no pair was judged.
    """
    row = workspace.queries.run("rewards/agreement", tables={"scores": scores}).to_pylist()[0]
    return (int(row["half_points"]) / 2 / row["num_pairs"] if row["num_pairs"] else None), row["num_pairs"]


def summary(workspace: Workspace, rewards: pa.Table) -> dict[str, Any]:
    """Counts of groups by verdicts and spread over rows of rewards/rewards, and the sums behind the means."""
    return workspace.queries.run("rewards/summary", {"min_spread": MIN_SPREAD}, tables={"rows_added": rewards}).to_pylist()[0]


def single_verdicts(workspace: Workspace, eligible: pa.Table, *, only: Only | None = None) -> pa.Table:
    """(trajectory_id, passed) of attempts in no group that a verdict alone sends to the lane `sft`; passed is null without one.

    `eligible`: rows of groups.eligibility; `only`: the windows that they are of (NightWindows.only), None: all.
    """
    tables = {
        "awaiting": _singles(workspace, eligible),
        "checks": _checks(load(workspace)),
        "fallen": workspace.queries.run("rewards/fallen", only=only),
    }
    scored = workspace.queries.run("rewards/combined", tables=tables, only=only)
    passed = pc.greater_equal(scored.column("verifier_score"), pass_mark(workspace))  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    return pa.table({"trajectory_id": scored.column("trajectory_id"), "passed": passed})


def _with_anchors(workspace: Workspace, only: Only) -> Only:
    """The same windows, and of the days of their groups' anchors the attempts too: an anchor was logged at any time."""
    kept = only.get(TRAJECTORIES.name)
    if not isinstance(kept, Kept):
        return only
    days = workspace.queries.run("groups/anchor_days", only=only).column("day").to_pylist()
    return {**only, TRAJECTORIES.name: Kept(kept.column, kept.values | set(days))}


def _singles(workspace: Workspace, eligible: pa.Table) -> pa.Table:
    if workspace.config.rewards.rule == "judge_only":  # verifiers say nothing there
        eligible = eligible.slice(0, 0)
    return workspace.queries.run("rewards/singles", tables={"eligible": eligible})


def _checks(verifiers: Sequence[Verifier]) -> pa.Table:
    return pa.table(
        {
            "verifier": pa.array([verifier.name for verifier in verifiers], pa.string()),
            "verifier_hash": pa.array([verifier.verifier_hash for verifier in verifiers], pa.string()),
            "reads_turns": pa.array([verifier.verify is not None for verifier in verifiers], pa.bool_()),
        }
    )


def _verify(
    workspace: Workspace, night: str, verifiers: Sequence[Verifier], tables: Mapping[str, pa.Table], only: Only
) -> tuple[int, int]:
    """Ask every verifier about the attempts that it has not answered; returns numbers of verdicts and of failures."""
    by_name = {verifier.name: verifier for verifier in verifiers}
    parameters = {"window_days": workspace.config.groups.window_days}
    open_rows = workspace.queries.run("rewards/unverified", parameters, tables=tables, only=only)
    num_failures = 0
    with progress.bar("verifying attempts", open_rows.num_rows) as advance:
        for batch in open_rows.to_batches(max_chunksize=_STEP):
            rows: list[dict[str, Any]] = []
            for row in batch.to_pylist():
                turns = json.loads(row["turns"]) if row["turns"] else []
                verdict = by_name[row["verifier"]].verdict(row["task_id"], turns, row["outcome"])
                num_failures += verdict.failed
                rows.append(
                    {
                        "trajectory_id": row["trajectory_id"],
                        "verifier": row["verifier"],
                        "verifier_hash": row["verifier_hash"],
                        "times": row["times"],
                        "verifier_score": verdict.score,
                        "reason": verdict.reason,
                        "window": row["window"],
                        "night": night,
                    }
                )
            _keep(workspace, pa.Table.from_pylist(rows, schema=VERDICTS.schema))
            advance(len(rows))
    return open_rows.num_rows, num_failures


def _keep(workspace: Workspace, verdicts: pa.Table) -> None:
    """Append verdicts that another run has not given meanwhile, looking at their windows alone."""
    of_windows = ds.field("window").isin(verdicts.column("window").unique().to_pylist())
    workspace.lake.append_missing(VERDICTS.name, verdicts, among=of_windows)


def _rewards(workspace: Workspace, night: str, rubric_hash: str, settings_key: str, scored: pa.Table, judged: Judged) -> pa.Table:
    config = workspace.config.rewards
    mark, weight = pass_mark(workspace), round(config.judge_weight * REWARD_UNIT)
    rows: list[dict[str, Any]] = []
    for group_id, members in groupby(scored.to_pylist(), key=lambda row: row["group_id"]):
        ruler_scores = judged.scores.get(group_id, {})
        attempt_of = {row["trajectory_id"]: row for row in members}
        attempts = [
            Attempt(
                row["trajectory_id"],
                row["verifier_score"],
                ruler_scores.get(row["trajectory_id"]),
                verifier_failed=row["verifier_failed"],
                fault=row["fault"],
            )
            for row in attempt_of.values()
        ]
        combined = combine(
            attempts,
            config.rule,
            judge_weight=weight,
            judge_failed=group_id in judged.failed,
            min_judged=workspace.config.groups.min_judged,
        )
        # what the rewards were made of: other scores of any sibling give another key, the same ones the same key
        inputs = sorted([a.trajectory_id, a.verifier_score, a.ruler_score] for a in attempts)
        reward_key = settings_key + plain_hash([inputs, sorted(r.reason or "" for r in combined)])[:16]
        rewards = {reward.trajectory_id: reward for reward in combined}
        for attempt in attempts:
            reward = rewards[attempt.trajectory_id]
            rows.append(
                {
                    "trajectory_id": attempt.trajectory_id,
                    "group_id": group_id,
                    "rubric_hash": rubric_hash,
                    "reward_key": reward_key,
                    "rule": reward.rule,
                    "reward": reward.reward,
                    "verifier_score": attempt.verifier_score,
                    "passed": attempt.verifier_score >= mark if attempt.verifier_score is not None else None,
                    "ruler_score": attempt.ruler_score,
                    "reason": reward.reason,
                    "calibration_id": None,
                    "sequence": 0,
                    "window": attempt_of[attempt.trajectory_id]["window"],
                    "night": night,
                }
            )
    return pa.Table.from_pylist(rows, schema=REWARDS.schema)


def _report(
    workspace: Workspace, added: pa.Table, judged: Judged, num_verdicts: int, num_failures: int, rubric_hash: str
) -> Scored:
    counts = summary(workspace, added)
    share, num_pairs = agreement(workspace, added)
    reasons = Counter(reason for reason in added.column("reason").to_pylist() if reason is not None)
    tables = (VERDICTS.name, JUDGEMENTS.name, REWARDS.name)
    return Scored(
        groups=counts["num_groups"],
        groups_mixed=counts["groups_mixed"],
        groups_all_pass=counts["groups_all_pass"],
        groups_all_fail=counts["groups_all_fail"],
        verdicts=num_verdicts,
        verifier_failures=num_failures,
        judged=len(judged.scores),
        judge_failures=len(judged.failed),
        judge_requests=judged.num_requests,
        judge_cost_usd=judged.cost_usd,
        agreement=share,
        agreement_pairs=num_pairs,
        mean_reward=int(counts["sum_rewards"]) / counts["num_rewards"] / REWARD_UNIT if counts["num_rewards"] else None,
        pass_rate=counts["num_passed"] / counts["num_verdicts"] if counts["num_verdicts"] else None,
        rubric_hash=rubric_hash,
        reasons=dict(sorted(reasons.items())),
        versions={table: version for table in tables if (version := workspace.lake.version(table)) is not None},
        why_nothing=None if added.num_rows else "no sealed group waits for rewards under this rubric and these settings",
    )
