"""What each stage returns: plain numbers and ids, shown as asset metadata, by the command line and as JSON.

Every report carries `versions`: the version of each table that the stage wrote, after it wrote. `why_nothing` says in
one line why there was nothing to do, which is a normal result and no error; None where something was done.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Report:
    """Common to all."""

    versions: dict[str, int] = field(default_factory=dict)
    """Table -> version."""
    why_nothing: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToppedUp(Report):
    """Before stage 1: what an earlier night wanted, run again with the champion."""

    rollouts: int
    """Made now; those with a fault included."""
    found: int
    """Made by an earlier run of this very night, which its budget counts too."""
    tasks: int
    """Tasks with a rollout of this night."""
    tokens: int
    """Of the night's prompts and answers."""
    seconds: float
    """Wall time of the night's rollouts."""
    stopped_by: str
    """One of reasons.TOP_UP_STOPS."""
    faults: dict[str, int]
    """The night's rollouts that failed, by fault."""
    skipped: dict[str, int]
    """Tasks that were not run again, by reasons.TOP_UP_SKIPS."""
    temperature: float | None
    """At which was sampled; None where nothing was to be."""
    share_without_spread: float | None
    """Of the last nights' groups with top-ups; None where there were too few to tell."""
    policy_version: str | None
    wanted_night: str | None
    """Whose list was run."""
    problem: str | None = None
    """Why the night goes on without the rest, in one line; None where all is well."""


@dataclass(frozen=True, kw_only=True)
class Landed(Report):
    """Stage 1."""

    records: int
    """Records that are new in the lake, without the skipped."""
    seen: int
    """Records that were read again and known already."""
    quarantined: int
    """New rows in quarantine."""
    skipped: int
    """New records without a trajectory (enumerated reason)."""
    formats: dict[str, int]
    """Files by format, `unknown` for those of none, `empty` for those without content."""
    redactions: dict[str, int]
    """Secrets replaced, by rule."""
    days: list[str]
    """Days of the new records, sorted."""
    waiting: int = 0
    """Files whose end is still being written: it is read next time."""
    waiting_files: list[str] = field(default_factory=list)
    """Their names, sorted."""
    resting: int = 0
    """Those of them that are documents, which are taken as they are once nobody has written to them for a while."""
    unchanged: int = 0
    """Files that had been taken in to their end before: nothing in them was read as a record again."""


@dataclass(frozen=True, kw_only=True)
class Built(Report):
    """Stage 2."""

    days: list[str]
    """Days that were rebuilt, sorted."""
    trajectories: int
    """Trajectories of those days."""
    duplicates: int
    """Records of those days that another trajectory stands for."""
    faults: int
    """Trajectories that ended in a harness fault."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Those records, by the kind that says why they are in no trajectory's provenance."""
    linked: int = 0
    """Trajectories that come from another one: subagents, branches, compactions, continuations."""
    gaps: int = 0
    """Trajectories with assistant turns that no record answers; those turns are not trainable."""
    identical: int = 0
    """Records that are equal to another in every byte and name neither id nor time: nobody can tell whether they are
    attempts of their own, so they count as one."""
    unreadable: int = 0
    """Records of bundles that their format's parser could not read: in trajectories/duplicates, to be tried again by a replay."""


@dataclass(frozen=True, kw_only=True)
class Replayed(Report):
    """Stage 2 again, by parsers that were mended: what would change, or did where `applied`."""

    applied: bool
    bundles: int
    """Bundles that were read again."""
    added: int
    """Trajectories that there were none of before."""
    changed: int
    removed: int
    unchanged: int
    columns: dict[str, int]
    """Columns that differ, with the number of trajectories in which they do."""
    readable: int
    """Records of bundles that could not be read and can be now."""
    unreadable: int
    """Records of bundles that cannot be read."""
    stale_groups: list[str]
    """Sealed groups that hold a changed or removed member."""
    stale_rewards: int
    """Rewards of those groups."""
    checkpoints: list[dict[str, object]]
    """Checkpoints that learned from those groups ({checkpoint, policy_version, night, through}); they keep citing the batches
    that they used."""
    placed: dict[str, int] = field(default_factory=dict)
    """Records that belong elsewhere by the parsers in force: how many have another `bundle_key`, `day` or `skip_reason`."""
    unplaced: dict[str, int] = field(default_factory=dict)
    """Why other records stay where they are although nobody can say whether they belong there."""
    redacted: dict[str, int] = field(default_factory=dict)
    """Records, pieces and judgements that a changed rule set or redaction key redacts anew, by table."""
    holding: list[str] = field(default_factory=list)
    """Frozen batches whose rows may spell what is or was redacted anew: a replay leaves them as they are."""
    holding_checkpoints: list[dict[str, object]] = field(default_factory=list)
    """Checkpoints that learned from those batches; their runs in MLflow keep an adapter and a list of log files as artifacts."""


@dataclass(frozen=True, kw_only=True)
class Sealed(Report):
    """Stage 3, sealing."""

    groups: int
    """Groups sealed now."""
    members: int
    """Their members."""
    anchors: int = 0
    """Attempts of other models that were put beside groups with top-ups."""
    waiting: int
    """Trajectories that wait for siblings."""
    stale: int = 0
    """Groups that became stale now: a member is gone, or is under another task or context."""
    splits: dict[str, int]
    """Tasks by split, all that are known."""
    near_held_out: int = 0
    """Train tasks that are near-copies of held-out or audit tasks and do not train, all that are known."""
    near_trained: int = 0
    """Those of them that had trained before that was known."""
    other_making: int = 0
    """Requests whose signatures were made under other settings and are compared with nothing: `nightshift replay --all` makes
    them anew."""


@dataclass(frozen=True, kw_only=True)
class Overview(Report):
    """What the log is worth: sealed groups and those that would be sealed if tonight were now."""

    trajectories: int
    groups: int
    groups_mixed: int
    """Some members pass and some do not, by the outcome that the log carries."""
    groups_all_pass: int
    groups_all_fail: int
    groups_unknown: int
    """Groups without logged outcomes; a verifier may still tell."""
    eligible_for: dict[str, int]
    """Trajectories by lane, from provenance alone."""
    reasons: dict[str, int]
    """Trajectories by the reason of their lane."""


@dataclass(frozen=True, kw_only=True)
class WantedTasks(Report):
    """Stage 3, last: what tomorrow's top-up should run."""

    tasks: int
    reasons: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Scored(Report):
    """Stage 4."""

    groups: int
    """Groups that got rewards now."""
    groups_mixed: int
    groups_all_pass: int
    groups_all_fail: int
    verdicts: int
    verifier_failures: int
    judged: int
    """Groups with a usable judgement, cached ones included."""
    judge_failures: int
    judge_requests: int
    """Requests really sent."""
    judge_cost_usd: float | None
    agreement: float | None
    """Share of pairs with different verdicts that the judge orders as the tests do (ties count half); None without pairs."""
    agreement_pairs: int
    mean_reward: float | None
    """Over this call's rewards, in reward units."""
    pass_rate: float | None
    """Over this call's verdicts."""
    rubric_hash: str
    reasons: dict[str, int]
    """Members without a reward, by reason."""


@dataclass(frozen=True, kw_only=True)
class Frozen(Report):
    """Stage 5."""

    batch_ids: list[str]
    """Batches that wait for training, this night's and those that an earlier, killed night left."""
    groups: int
    trajectories: int
    rows: int
    sampled_tokens: int
    """Of the batches frozen now."""
    lanes: dict[str, int]
    """All trajectories that tonight considered, by lane."""
    reasons: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Trained(Report):
    """Stage 6."""

    run_id: str | None
    folder: Path | None
    """The checkpoint folder; None where there was nothing to train."""
    batch_ids: list[str]
    reused: bool
    """The same batches and configuration were trained before, and their checkpoint is returned."""
    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Registered(Report):
    """Stage 7."""

    checkpoint_id: str | None
    policy_version: str | None
    version: int | None
    reused: bool
    mlflow_run_id: str | None


@dataclass(frozen=True, kw_only=True)
class Evaluated(Report):
    """Stage 8."""

    checkpoint_id: str | None
    champion_id: str
    eval_set: str
    num_tasks: int
    challenger_pass_rate: float | None
    champion_pass_rate: float | None
    failures: int
    """Rollouts without a score (harness or verifier failed)."""
    reused: int
    """Results that were there already."""


@dataclass(frozen=True, kw_only=True)
class Measured(Report):
    """Stage 9."""

    signals: dict[str, float | None]
    alarms: list[str]


@dataclass(frozen=True, kw_only=True)
class Decided(Report):
    """Stage 10."""

    number: int
    decision: str
    reason: str
    challenger: str | None
    champion: str
    """checkpoint_id after the decision."""
    policy_version: str
    """Of the champion after the decision."""
    challenger_pass_rate: float | None
    champion_pass_rate: float | None
    difference: float | None
    lower_bound: float | None
    num_tasks: int
    reused: bool
    """This challenger was decided on before."""
    alias_problem: str | None = None
    """Why MLflow's alias does not follow yet, in one line; None where it does. The lake's row holds all the same."""
