"""Reads: rewards, batches/lanes, checkpoints/checkpoints, evaluation/results. Writes: monitors/signals. Next: promotion.

Stage 9: numbers that say whether a night can be believed. A signal that could not be measured is `unmeasured` and has no
value. An `alarm` holds the promotion, so it is kept for what casts doubt on the night's checkpoint; what merely makes a
night less useful (no spread, a judge that did not answer) is shown with its reading in the detail.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines import chain
from pipelines.doors.lake import Snapshot
from pipelines.reports import Measured
from pipelines.rewards.score import agreement, summary
from pipelines.schemas import SIGNALS
from pipelines.workspace import Workspace
from trainer.contract import LANES, REWARD_UNIT

MAX_CLIP_FRACTION = 0.5
"""Above it most tokens stand outside the trust region; a run at 0.59 was seen to be unstable."""
MIN_ESS = 0.3
"""Effective sample size of the importance weights, as a share; it falls before a policy collapses."""
MAX_VERIFIER_FAILURES = 0.1
MAX_HARNESS_FAULTS = 0.5


@dataclass(frozen=True)
class Signal:
    """One number of a night."""

    signal: str
    value: float | None
    """None where it could not be measured."""
    unit: str
    """share | count | reward | ratio."""
    detail: str
    alarm: bool = False

    @property
    def state(self) -> str:
        """ok | alarm | unmeasured."""
        if self.value is None:
            return "unmeasured"
        return "alarm" if self.alarm else "ok"


def measure(workspace: Workspace, night: str) -> Measured:
    """Stage 9 for a night (YYYY-MM-DD): measure every signal anew and replace the night's rows."""
    signals = [
        *_reward_signals(workspace, night),
        *_lane_signals(workspace, night),
        *_checkpoint_signals(workspace, night),
    ]
    rows = [
        {
            "night": night,
            "signal": signal.signal,
            "value": signal.value,
            "unit": signal.unit,
            "state": signal.state,
            "detail": signal.detail,
        }
        for signal in signals
    ]

    def compute(snapshot: Snapshot) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=SIGNALS.schema)

    commit = workspace.lake.replace_computed(SIGNALS.name, [night], compute)
    return Measured(
        signals={signal.signal: signal.value for signal in signals},
        alarms=[f"{signal.signal}: {signal.detail}" for signal in signals if signal.state == "alarm"],
        versions={SIGNALS.name: commit.version},
    )


def _reward_signals(workspace: Workspace, night: str) -> list[Signal]:
    parameters = {"night": night, "rubric_hash": workspace.rubric()[1]}
    rewards = workspace.queries.run("monitors/rewards_of_night", parameters)
    counts = summary(workspace, rewards)
    verified = workspace.queries.run("monitors/verified", parameters).to_pylist()[0]
    judged = workspace.queries.run("monitors/judged", parameters).to_pylist()[0]
    groups, num_groups = f"of {counts['num_groups']} groups scored tonight", counts["num_groups"]
    order, num_pairs = agreement(workspace, rewards)
    failures = _share(verified["num_failed"], verified["num_verdicts"])
    mean = _share(int(counts["sum_rewards"] or 0), counts["num_rewards"])
    cost = f", for {judged['cost_usd']:.4f} USD" if judged["cost_usd"] is not None else ""
    return [
        Signal("groups_scored", float(num_groups), "count", "groups that got rewards tonight"),
        Signal(
            "share_without_spread",
            _share(num_groups - counts["groups_with_spread"], num_groups),
            "share",
            f"{groups}: all rewards equal, they teach nothing; near 1, the tasks are too easy or too hard for this policy",
        ),
        Signal("share_all_pass", _share(counts["groups_all_pass"], num_groups), "share", f"{groups}: every attempt passes"),
        Signal("share_all_fail", _share(counts["groups_all_fail"], num_groups), "share", f"{groups}: no attempt passes"),
        Signal(
            "mean_reward",
            None if mean is None else mean / REWARD_UNIT,
            "reward",
            f"over {counts['num_rewards']} rewards given tonight",
        ),
        Signal(
            "pass_rate",
            _share(counts["num_passed"], counts["num_verdicts"]),
            "share",
            f"of {counts['num_verdicts']} attempts with a verdict, in production, not held out",
        ),
        Signal(
            "verifier_failure_share",
            failures,
            "share",
            f"{verified['num_failed']} of {verified['num_verdicts']} verdicts: the verifier broke; see `reason` in rewards/verdicts",
            alarm=failures is not None and failures > MAX_VERIFIER_FAILURES,
        ),
        Signal(
            "judge_agreement",
            order,
            "share",
            f"of {num_pairs} sibling pairs with different verdicts ordered as the tests do; 0.5 is chance. An uncalibrated "
            "judge trains nothing",
        ),
        Signal(
            "judge_failure_share",
            _share(judged["num_failed"], judged["num_groups"]),
            "share",
            f"{judged['num_failed']} of {judged['num_groups']} groups judged tonight got no usable reply{cost}",
        ),
    ]


def _lane_signals(workspace: Workspace, night: str) -> list[Signal]:
    lanes, reasons = Counter[str](), Counter[str]()
    for row in workspace.queries.run("batches/lane_counts", {"night": night}).to_pylist():
        lanes[row["lane"]] += row["num_trajectories"]
        reasons[row["lane_reason"]] += row["num_trajectories"]
    total = lanes.total()
    faults = _share(reasons["harness_fault"], total)
    return [
        *(
            Signal(f"lane_share_{lane}", _share(lanes[lane], total), "share", f"{lanes[lane]} of {total} trajectories")
            for lane in LANES
        ),
        Signal(
            "harness_fault_share",
            faults,
            "share",
            f"{reasons['harness_fault']} of {total} trajectories ended in a fault of the harness, not of the policy",
            alarm=faults is not None and faults > MAX_HARNESS_FAULTS,
        ),
    ]


def _checkpoint_signals(workspace: Workspace, night: str) -> list[Signal]:
    parameters = {"night": night, "policy": workspace.config.policy.name}
    found = workspace.queries.run("monitors/challenger", parameters).to_pylist()
    challenger = found[0] if found else None
    metrics = json.loads(challenger["metrics"] or "{}") if challenger else {}
    # after the decision the challenger may be champion itself: then it is whom it was measured against that counts
    champion = (challenger or {}).get("measured_against") or chain.champion(workspace).checkpoint_id
    names = {"champion": champion, "challenger": challenger["checkpoint_id"] if challenger else None}
    measured = pa.table({"checkpoint_id": pa.array([name for name in names.values() if name], pa.string())})
    rates = {
        row["checkpoint_id"]: row
        for row in workspace.queries.run("monitors/held_out", parameters, tables={"measured": measured}).to_pylist()
    }
    return [
        _metric(
            metrics,
            "clip_fraction",
            f"share of tokens outside the clip range; above {MAX_CLIP_FRACTION} lower training.learning_rate or epochs",
            lambda value: value > MAX_CLIP_FRACTION,
        ),
        _metric(
            metrics,
            "ess",
            f"effective share of the logged tokens under importance weights; below {MIN_ESS} the log is too far from the policy",
            lambda value: value < MIN_ESS,
        ),
        *(_held_out(role, name, rates.get(name or "")) for role, name in names.items()),
    ]


def _held_out(role: str, checkpoint_id: str | None, row: dict[str, Any] | None) -> Signal:
    if row is None:
        why = "was not measured on the held-out tasks" if checkpoint_id else "does not exist: tonight trained nothing"
        return Signal(f"held_out_{role}", None, "share", f"the {role} {why}")
    value = _share(row["num_passed"], row["num_measured"])
    return Signal(
        f"held_out_{role}", value, "share", f"{checkpoint_id} passes {row['num_passed']} of {row['num_measured']} answers"
    )


def _metric(metrics: dict[str, Any], name: str, detail: str, is_alarm: Callable[[float], bool]) -> Signal:
    value = metrics.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return Signal(name, None, "ratio", f"tonight's run measured none: {detail}")
    return Signal(name, float(value), "ratio", detail, alarm=is_alarm(value))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
