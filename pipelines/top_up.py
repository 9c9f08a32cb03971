"""Reads: groups/wanted, groups/splits, trajectories/trajectories. Writes: top_up/<night>.jsonl, a recorder log in the workspace. Next: landing.

Top-up, the bridge from single attempts to groups: a night begins by running what an earlier night wanted once more, with
the champion through the user's harness, so that fresh siblings with exact tokens exist. The lines land like production's
with the purpose `top_up`. The list, the attempts and the seeds follow from the night, and what the night's log holds is not
made again: a run that was killed goes on, within the one budget of its night. A server that is gone or a harness that
fails takes nothing from the night but its top-ups: the log still trains, and the report says what went wrong.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pipelines import chain, harness, words
from pipelines.budgets import Budget
from pipelines.doors.chat import Clock
from pipelines.errors import EngineError, HarnessError
from pipelines.evaluation import dated
from pipelines.harness import Rollout
from pipelines.landing.format import asked
from pipelines.landing.redacted_tokens import TOKEN
from pipelines.reports import ToppedUp
from pipelines.workspace import Workspace
from trainer.contract import MIN_SPREAD

PURPOSE = "top_up"
STEP = 0.1
"""By how much the temperature moves in a night."""
LAST_DAYS = 7
"""Days whose groups say whether it moves."""
MIN_GROUPS = 4
"""Fewer groups with top-ups than these say nothing about the temperature."""

_SAID = ("role", "content", "tool_calls", "tool_call_id", "name")


@dataclass(frozen=True)
class _Plan:
    """What a night would run if its budget sufficed."""

    tasks: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    """Of each task."""
    night: str | None = None
    """Whose list it is; None where there is none."""
    skipped: dict[str, int] = field(default_factory=dict)
    """By reasons.TOP_UP_SKIPS."""
    cut: bool = False
    """groups.top_up left something out."""


def run(workspace: Workspace, night: str, *, clock: Clock | None = None) -> ToppedUp:
    """Run the newest list of a night before `night` (YYYY-MM-DD) as far as the budget goes; what is there already stays.

    `clock` gives the times of the recorded lines; None: as for evaluations, `dated(night)`. No exception for a server or a
    harness that fails: the report's `problem` says so.
    """
    config, began = workspace.config, time.monotonic()
    if config.groups.top_up == 0 or config.harness.entry is None:
        return _nothing(workspace, night)
    temperature, share = sampling(workspace, night)
    log = workspace.top_ups / f"{night}.jsonl"
    problem: str | None = None
    plan, found, budget = _Plan(), list[Rollout](), None
    try:
        plan = _planned(workspace, night)
        found = list(harness.recorded(workspace, log).values())
        budget = _budget(workspace, found)
        if plan.tasks:
            policy = _policy(workspace, found)
            _make(workspace, night, plan, policy, temperature, budget, _after(clock or dated(night), found))
    except (EngineError, HarnessError) as caught:
        problem = str(caught)
    rollouts = list(harness.recorded(workspace, log).values()) if log.exists() else []
    stopped_by = _stopped_by(plan, budget, problem)
    made = len(rollouts) - len(found)
    return ToppedUp(
        rollouts=made,
        found=len(found),
        tasks=len({rollout.task_key or orjson.dumps(asked(rollout.turns)) for rollout in rollouts}),
        tokens=sum(rollout.num_tokens for rollout in rollouts),
        seconds=round(_seconds(found) + (time.monotonic() - began if made else 0.0), 3),
        stopped_by=stopped_by,
        faults=dict(sorted(Counter(rollout.fault for rollout in rollouts if rollout.fault).items())),
        skipped=plan.skipped,
        temperature=temperature if plan.tasks else None,
        share_without_spread=share,
        policy_version=rollouts[0].policy_version if rollouts else None,
        wanted_night=plan.night,
        problem=problem,
        why_nothing=None if made else problem or _why_nothing(plan, len(rollouts)),
    )


def sampling(workspace: Workspace, night: str) -> tuple[float, float | None]:
    """Temperature of a night's top-ups, and the share of the last nights' groups with top-ups that had no spread.

    Night by night from the first on: up by STEP where more than half of the groups sealed in the LAST_DAYS had none, at most
    to top_up.max_temperature; back by STEP towards where it began where less than a quarter had none. The share is None, and
    the temperature stays, where there were fewer than MIN_GROUPS.
    """
    base = workspace.config.top_up.temperature or workspace.config.policy.temperature
    highest = max(base, workspace.config.top_up.max_temperature)
    parameters = {"night": night, "rubric_hash": workspace.rubric()[1], "min_spread": MIN_SPREAD}
    counted = workspace.queries.run("groups/top_up_spread", parameters).to_pylist()
    temperature = base
    for row in counted:
        share = _share(counted, row["night"])
        if share is not None and share > 0.5:
            temperature = min(temperature + STEP, highest)
        elif share is not None and share < 0.25:
            temperature = max(temperature - STEP, base)
    return round(temperature, 3), _share(counted, counted[-1]["night"]) if counted else None


def _share(counted: Sequence[dict[str, Any]], night: str) -> float | None:
    """Of groups without spread in the LAST_DAYS up to a night."""
    first = (datetime.date.fromisoformat(night) - datetime.timedelta(days=LAST_DAYS - 1)).isoformat()
    last = [row for row in counted if first <= row["night"] <= night]
    num_groups = sum(row["num_groups"] for row in last)
    return sum(row["num_flat"] for row in last) / num_groups if num_groups >= MIN_GROUPS else None


def _planned(workspace: Workspace, night: str) -> _Plan:
    """The most useful tasks first, each brought up to top_up.attempts, within groups.top_up rollouts."""
    config = workspace.config
    given = harness.read_tasks(workspace.path(config.top_up.tasks)) if config.top_up.tasks else []
    own = {task["task_id"]: task for task in given}
    # a few times as many as there can be, since some are skipped
    parameters = {"night": night, "harness": config.harness.name, "num_tasks": 4 * config.groups.top_up}
    rows = workspace.queries.run("groups/top_up_tasks", parameters).to_pylist()
    size = min(config.top_up.attempts, config.groups.size)
    tasks, attempts, skipped, left = list[dict[str, Any]](), list[int](), Counter[str](), config.groups.top_up
    cut = False
    for row in rows:
        task = own.get(row["task_id"]) or _as_logged(row)
        if isinstance(task, str):
            skipped[task] += 1
            continue
        missing = size - row["num_waiting"]
        if missing < 1:
            skipped["siblings_wait"] += 1
            continue
        number = min(missing, left)
        cut = number < missing
        if row["num_waiting"] + number < 2 or number == 0:  # one alone makes no group
            break
        tasks.append(task)
        attempts.append(number)
        left -= number
    return _Plan(tasks, attempts, rows[0]["night"] if rows else None, dict(sorted(skipped.items())), cut)


def _as_logged(row: dict[str, Any]) -> dict[str, Any] | str:
    """The task as production asked it last, or the word for why it cannot be asked so."""
    system, request = asked(orjson.loads(row["turns"])) if row["turns"] else ([], [])
    if not any(turn["role"] == "user" for turn in request):
        return "no_request"
    messages = [{name: turn[name] for name in _SAID if turn.get(name) is not None} for turn in (*system, *request)]
    for message in messages:
        message.setdefault("content", None)
    task = {
        "task_id": row["task_id"],
        "task_key": row["task_key"],
        "messages": messages,
        "tools": None if row["tools"] is None else orjson.loads(row["tools"]),
    }
    return "redacted" if TOKEN.search(orjson.dumps(task).decode()) else task


def _budget(workspace: Workspace, found: Sequence[Rollout]) -> Budget:
    """The night's, of which what its log holds is used already."""
    top_up = workspace.config.top_up
    return Budget(
        num_rollouts=workspace.config.groups.top_up,
        num_tokens=top_up.max_tokens,
        seconds=None if top_up.max_minutes is None else max(top_up.max_minutes * 60 - _seconds(found), 0.0),
        num_ended=len(found),
        tokens=sum(rollout.num_tokens for rollout in found),
    )


def _policy(workspace: Workspace, found: Sequence[Rollout]) -> chain.Policy:
    """The champion; where the night was begun, the one that it was begun with: it may have been dethroned since."""
    known = {policy.policy_version: policy for policy in chain.policies(workspace).values()}
    return known.get(found[0].policy_version) or chain.champion(workspace) if found else chain.champion(workspace)


def _make(
    workspace: Workspace, night: str, plan: _Plan, policy: chain.Policy, temperature: float, budget: Budget, clock: Clock
) -> None:
    from pipelines.doors.engine import engine

    if budget.is_used() or budget.num_ended >= sum(plan.attempts):
        return  # nobody has to serve anything
    with engine(workspace) as server:
        harness.run(
            workspace,
            plan.tasks,
            purpose=PURPOSE,
            policy_version=policy.policy_version,
            attempts=plan.attempts,
            log=workspace.top_ups / f"{night}.jsonl",
            url=server.url,
            model=server.model_for(policy),
            seed=workspace.config.training.seed,
            clock=clock,
            tag=night,
            temperature=temperature,
            budget=budget,
        )


def _moments(found: Sequence[Rollout]) -> Iterator[tuple[datetime.datetime, datetime.datetime]]:
    for rollout in found:
        yield datetime.datetime.fromisoformat(rollout.began), datetime.datetime.fromisoformat(rollout.ended)


def _seconds(found: Sequence[Rollout]) -> float:
    """For how long rollouts were in flight by the log's clock, however many side by side."""
    total, until = datetime.timedelta(), None
    for began, ended in sorted(_moments(found)):
        if until is None or ended > until:
            total += ended - (began if until is None else max(began, until))
            until = ended
    return total.total_seconds()


def _after(clock: Clock, found: Sequence[Rollout]) -> Clock:
    """The clock, put on where an earlier run of the night ended: a night of the past begins at the same hour each time."""
    last, now = max((ended for _, ended in _moments(found)), default=None), clock()
    if last is None or now >= last:
        return clock
    return lambda: clock() + (last - now)


def _stopped_by(plan: _Plan, budget: Budget | None, problem: str | None) -> str:
    if problem is not None:
        return "failed"
    if not plan.tasks:
        return "nothing_wanted"
    if budget is not None and budget.stopped_by is not None:
        return budget.stopped_by
    return "rollouts" if plan.cut else "done"


def _why_nothing(plan: _Plan, num_found: int) -> str:
    if num_found:
        return f"this night's {num_found} rollouts are in its log already"
    if plan.night is None:
        return "no earlier night wants a task of this workspace's harness"
    if not plan.tasks:
        listed = "; ".join(f"{number} {words.said(words.TOP_UP_SKIP, reason)}" for reason, number in plan.skipped.items())
        return f"what night {plan.night} wants cannot be run again ({listed or 'groups.top_up is too small for a pair'})"
    return "the budget of this night allows no rollout"


def _nothing(workspace: Workspace, night: str) -> ToppedUp:
    off = workspace.config.groups.top_up == 0
    why = "no harness is configured ([harness] entry), so no task can be run again"
    if off:
        why = "top-up is off ([groups] top_up = 0); what it would run: nightshift groups wanted"
    return ToppedUp(
        rollouts=0,
        found=0,
        tasks=0,
        tokens=0,
        seconds=0.0,
        stopped_by="off" if off else "no_harness",
        faults={},
        skipped={},
        temperature=None,
        share_without_spread=None,
        policy_version=None,
        wanted_night=None,
        why_nothing=why,
    )
