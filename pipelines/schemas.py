"""The tables of the lake: one pyarrow schema each, with grain, key and what each column means.

Text columns stay out of Delta's min/max statistics (`STATISTICS`), because statistics live on in the log after a delete.
`day` and `night` are strings YYYY-MM-DD in UTC: `day` is the day of an attempt's last record by its own log, `night` the
day that a nightly run is for. Scores and rewards are int64 in units of 1e-6 (trainer/contract.py); null means that there
is none, never 0. Nested content is JSON text (`orjson`, sorted keys): merges into nested columns have written nulls.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")
_STRINGS = pa.list_(pa.string())


@dataclass(frozen=True)
class TableSpec:
    """One table of the lake."""

    name: str
    """Path under the lake's root, `<stage>/<table>`."""
    schema: pa.Schema
    key: tuple[str, ...]
    """Columns that identify a row (its grain)."""
    statistics: tuple[str, ...]
    """Columns that may appear in Delta's statistics: ids and days, never text."""
    partition: str | None = None
    unlike: tuple[str, ...] = field(default=())
    """Columns whose values hardly ever repeat: a dictionary of them would cost time and save nothing."""
    landing_columns: tuple[str, ...] = field(default=())
    """When and where something was delivered, not what it is: left out of `doctor --digest` (I3)."""


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()])


RECORDS = TableSpec(
    "landing/records",
    _schema(
        record_id=pa.string(),  # HMAC of the vendor's own id, else of (content_id, k-th occurrence in its file)
        content_id=pa.string(),  # HMAC of the record's bytes before redaction
        bundle_key=pa.string(),  # records that are read together share it: one or more attempts
        day=pa.string(),  # of this record by its own time, else the day of its first landing
        format=pa.string(),  # name in the format registry
        parser_version=pa.int32(),
        skip_reason=pa.string(),  # null: it belongs to a trajectory; else one of reasons.SKIP_REASONS
        raw=pa.string(),  # the record as logged, redacted
        identities=pa.string(),  # JSON: of its turns, tools, task id before redaction (landing/spelling.py); null where redaction changed nothing
        rules=pa.string(),  # `<hash of the redaction rules>.<fingerprint of the redaction key>` that it stands under; null or without a key in older lakes
        source=pa.string(),  # file, relative to the workspace where it lies inside it
        line=pa.int64(),  # first line of the record in its file, from 1
        byte_start=pa.int64(),
        byte_end=pa.int64(),
        landed_at=_TIME,
    ),
    key=("record_id",),
    statistics=("record_id", "content_id", "bundle_key", "day"),
    partition="day",
    unlike=("record_id", "content_id", "raw", "identities", "byte_start", "byte_end"),
    landing_columns=("source", "line", "byte_start", "byte_end", "landed_at"),
)

QUARANTINE = TableSpec(
    "landing/quarantine",
    _schema(
        record_id=pa.string(),
        day=pa.string(),  # of landing: a record that cannot be read has no day of its own
        format=pa.string(),  # null where no format recognised the file
        source=pa.string(),
        line=pa.int64(),
        byte_start=pa.int64(),
        byte_end=pa.int64(),
        reason=pa.string(),  # one of reasons.QUARANTINE_REASONS
        detail=pa.string(),  # what the parser said, redacted
        raw=pa.string(),  # redacted, cut at 64 KiB
        rules=pa.string(),  # rules and key that it stands under, as in landing/records
        landed_at=_TIME,
    ),
    key=("record_id",),
    statistics=("record_id", "day"),
    landing_columns=("source", "line", "byte_start", "byte_end", "landed_at", "day"),
)

TRAJECTORIES = TableSpec(
    "trajectories/trajectories",
    _schema(
        trajectory_id=pa.string(),
        bundle_key=pa.string(),  # of its records
        day=pa.string(),  # UTC day of the attempt's last record
        format=pa.string(),
        parser_version=pa.int32(),  # of the parser that made this row; `nightshift replay` looks for those that are behind
        harness=pa.string(),  # scope of task ids
        task_id=pa.string(),  # the log's own, else what a rule of the workspace names it; null where neither does
        task_source=pa.string(),  # what named the task, one of reasons.TASK_SOURCES; null in rows of older lakes
        task_key=pa.string(),
        context_key=pa.string(),
        run_key=pa.string(),  # of its run, where groups.run names one: attempts of other runs are no siblings; else null
        task_rules=pa.string(),  # hash of the rules that name tasks and runs and of what is volatile; null where none is configured
        content_id=pa.string(),  # canonical content of the turns: equal for identical attempts
        attempt=pa.int32(),  # the log's own count, null where it has none
        purpose=pa.string(),  # production | top_up | evaluation
        policy_family=pa.string(),  # policy name without version, or the model's name; "unknown" where the log has none
        policy_version=pa.string(),  # `<policy>@<version>` of our own policies, null for other models
        model=pa.string(),
        turns=pa.string(),  # JSON list of turns: role, content, reasoning, tool_calls, tool_call_id, name, sampled, call
        calls=pa.string(),  # JSON list, one per sampled turn: prompt_token_ids, token_ids, logprobs, finish_reason (nulls where not logged)
        tools=pa.string(),  # JSON tool schema, null where none
        request_signature=pa.binary(),  # of the words of its request (pipelines/signatures.py), by which near-copies are found; null: too few of them, or a row from before there were any
        num_turns=pa.int32(),
        num_sampled_turns=pa.int32(),
        num_sampled_tokens=pa.int64(),  # 0 where ids were not logged
        exact_tokens=pa.bool_(),  # every sampled turn has its prompt's ids, its own ids and their logprobs
        known_ids=pa.string(),  # how all ids of its sampled turns are known, whatever became of their logprobs, one of reasons.KNOWN_IDS; null where they are not
        truncated=pa.bool_(),  # its last answer was cut off at the limit of tokens
        outcome=pa.int64(),  # the log's own outcome in 1e-6 after its declared range; null where none, or outside that range
        outcome_logged=pa.float64(),  # as it was logged
        outcome_source=pa.string(),
        fault=pa.string(),  # a harness fault's name; such an attempt is no failed attempt
        started_at=_TIME,
        ended_at=_TIME,
        parent_trajectory_id=pa.string(),  # where it comes from; null where from none that was logged
        link=pa.string(),  # how, one of reasons.LINKS
        parent_tool_call_id=pa.string(),  # the parent's tool call that started it
        num_shared_turns=pa.int32(),  # first turns that are the parent's
        num_gaps=pa.int32(),  # assistant turns in its prompts that no record answers: not trainable
        num_identical=pa.int32(),  # records that are equal in every byte and name neither id nor time, of which it is one
        num_prompt_tokens=pa.int64(),  # usage as logged, each call once; null where not logged
        num_reply_tokens=pa.int64(),
        cost_usd=pa.float64(),
        record_ids=_STRINGS,  # provenance, in the order of the attempt
        call_ids=_STRINGS,  # ids by which copies of its answers are known (landing/copied.py), its own and others'
        copied_call_ids=_STRINGS,  # those of answers that another attempt owns: context here, sampled there
        copied_from=_STRINGS,  # and that attempt, one for each of them
        shared_answers=_STRINGS,  # names of its answers (landing/shared_answers.py); null where it shares no record with another attempt
        other_logs=_STRINGS,  # rollouts that tell the same attempt: their records stand in trajectories/duplicates (`other_log`, `unfinished`)
        other_told=_STRINGS,  # what of theirs this row may have taken over, one identity for each of them
    ),
    key=("trajectory_id",),
    statistics=("trajectory_id", "bundle_key", "task_key", "context_key", "content_id", "day"),
    partition="day",
)

ROLLOUTS = TableSpec(
    "trajectories/rollouts",
    _schema(
        trajectory_id=pa.string(),  # an attempt as one log tells it, whether or not another log tells it too
        bundle_key=pa.string(),
        day=pa.string(),
        format=pa.string(),
        started_at=_TIME,
        ended_at=_TIME,
        exact_tokens=pa.bool_(),
        has_outcome=pa.bool_(),
        has_model=pa.bool_(),
        is_open=pa.bool_(),  # it ends before an answer: in a tool call, in a tool's result, in a prompt
        num_turns=pa.int32(),
        num_sampled_turns=pa.int32(),
        names=_STRINGS,  # every name of its answers, `<id>+<turn identity>` (landing/copied.py), first those that are unique in its format
        num_unique=pa.int32(),  # how many those are: trajectories' call_ids
        name_turns=pa.list_(pa.int32()),  # the turn that each name stands at
        last_turn=pa.int32(),  # that of the last answer; null where it has no name
        answer_times=pa.list_(_TIME),  # when each answer was logged; 1970 where the log does not say
        attempt_key=pa.string(),  # identity of (format, harness, task id, attempt number, model) where the log has all; else null
        prefixes=_STRINGS,  # where it has an attempt_key: identity of its first 1, 2, … turns
        facts=pa.string(),  # JSON: what a log of the same attempt that does not know it takes over (landing/same_attempt.py)
        told_id=pa.string(),  # identity of `facts`
    ),
    key=("trajectory_id",),
    statistics=("trajectory_id", "bundle_key", "day"),
    partition="day",
    unlike=("names", "prefixes", "facts"),
)

DUPLICATES = TableSpec(
    "trajectories/duplicates",
    _schema(
        record_id=pa.string(),  # a record that is in no trajectory's provenance
        bundle_key=pa.string(),
        trajectory_id=pa.string(),  # the trajectory that stands for it; null where there is none (`unmatched`, `unreadable`)
        kind=pa.string(),  # one of reasons.DUPLICATE_KINDS
        detail=pa.string(),  # of `unreadable`: what was wrong; else null
        similarity=pa.float64(),  # 1.0 where exact; of `other_log` the share of answers that both hold, of `unfinished` that of the keeper's turns; null where it is no copy
        parser_version=pa.int32(),  # of the parser that read its bundle, or failed to
        day=pa.string(),
    ),
    key=("record_id",),
    statistics=("record_id", "bundle_key", "trajectory_id", "day"),
    partition="day",
)

RENAMED = TableSpec(
    "trajectories/renamed",
    _schema(
        trajectory_id=pa.string(),
        former_key=pa.string(),  # task_key that it had before rules or a parser changed: what was held out then stays so
        task_key=pa.string(),  # that it got instead
    ),
    key=("trajectory_id", "former_key", "task_key"),
    statistics=("trajectory_id", "former_key", "task_key"),
)

SPLITS = TableSpec(
    "groups/splits",
    _schema(
        task_key=pa.string(),
        split=pa.string(),  # train | held_out | audit
        source=pa.string(),  # eval_set | drawn | inherited: from what its attempts' tasks were called before | near_trained: drawn for evaluation, but a near-copy of it had trained
        day=pa.string(),  # when it was first assigned; the first assignment wins for ever (I8)
    ),
    key=("task_key",),
    statistics=("task_key", "day"),
    landing_columns=("day",),
)

GROUPS = TableSpec(
    "groups/groups",
    _schema(
        group_id=pa.string(),
        trajectory_id=pa.string(),
        task_key=pa.string(),
        context_key=pa.string(),
        run_key=pa.string(),  # of the trajectories; null where runs do not matter
        policy_family=pa.string(),
        policy_version=pa.string(),
        content_id=pa.string(),
        outcome=pa.int64(),  # of the trajectory when it was sealed: where it became another since, the group is stale
        window=pa.string(),  # first day of the tumbling window
        day=pa.string(),  # of the trajectory
        role=pa.string(),  # member | anchor: shown beside the members, in none of their numbers; a trajectory may be it in any number of groups
        seal_reason=pa.string(),  # full | judged | closed
        sealed_night=pa.string(),  # the night, or the day of the ingest, that sealed it
    ),
    key=("group_id", "trajectory_id"),
    statistics=("group_id", "trajectory_id", "task_key", "day", "window"),
    landing_columns=("sealed_night",),
)

STALE = TableSpec(
    "groups/stale",
    _schema(
        group_id=pa.string(),  # a sealed group whose ground is gone: it is scored and trained no more
        reason=pa.string(),  # one of reasons.STALE_REASONS; its members may form another group, unless a batch consumed it
        trajectory_ids=_STRINGS,  # its members, sorted; null in rows from before they were kept
    ),
    key=("group_id",),
    statistics=("group_id",),
)

REQUESTS = TableSpec(
    "groups/requests",
    _schema(
        task_key=pa.string(),
        split=pa.string(),  # of the task
        request_signature=pa.binary(),  # as its trajectories have it; a task whose attempts began with different words has several
        near_threshold=pa.int64(),  # 1e-6: near-copies of it down to this similarity were looked for among the tasks that were known
        night=pa.string(),  # when
    ),
    key=("task_key", "request_signature", "near_threshold"),
    statistics=("task_key", "night"),
    partition="split",
    landing_columns=("night",),
)

NEAR = TableSpec(
    "groups/near",
    _schema(
        task_key=pa.string(),  # a train task that is a near-copy of one in another split; what is found first stays
        near_key=pa.string(),  # that task; of several the most similar one
        near_split=pa.string(),  # held_out | audit
        similarity=pa.int64(),  # 1e-6, estimated by the signatures of the requests
        trained=pa.bool_(),  # a batch had consumed a group of the task before: what was learned stays, and it trains no more
        night=pa.string(),  # when it was found
    ),
    key=("task_key",),
    statistics=("task_key", "near_key", "night"),
    landing_columns=("night",),
)

WANTED = TableSpec(
    "groups/wanted",
    _schema(
        task_key=pa.string(),
        task_id=pa.string(),
        harness=pa.string(),
        reason=pa.string(),  # one of reasons.WANTED_REASONS
        num_attempts=pa.int32(),  # logged ones of any model
        num_own=pa.int32(),  # of them our own policy's; null in rows from before it was counted
        num_waiting=pa.int32(),  # of those, what the next night's top-up would find in no group yet; null: 0
        score=pa.int64(),  # what the rank is made of (sql/groups/wanted.sql)
        rank=pa.int32(),  # 1 is the most useful
        night=pa.string(),
    ),
    key=("night", "task_key"),
    statistics=("task_key", "night"),
    partition="night",
)

JUDGEMENTS = TableSpec(
    "rewards/judgements",
    _schema(
        judgement_id=pa.string(),  # hash of the exact request: judge, parameters, order, text. The table is the cache.
        group_id=pa.string(),
        rubric_hash=pa.string(),
        judge=pa.string(),
        parameters=pa.string(),  # JSON
        presented=pa.string(),  # JSON: trajectory ids (several where identical) by the opaque id they were shown under, in the order shown
        attempt=pa.int32(),  # 1, 2, … of the bounded retries
        status=pa.string(),  # ok | bad_reply | unavailable
        error=pa.string(),
        reply=pa.string(),  # raw
        scores=pa.string(),  # JSON: int score in 1e-6 by trajectory id; null unless ok
        num_prompt_tokens=pa.int64(),
        num_reply_tokens=pa.int64(),
        cost_usd=pa.float64(),  # null where the judge has no price
        seconds=pa.float64(),
        code_version=pa.string(),
        night=pa.string(),
    ),
    key=("judgement_id", "attempt"),
    statistics=("judgement_id", "group_id", "night"),
    landing_columns=("seconds",),
)

VERDICTS = TableSpec(
    "rewards/verdicts",
    _schema(
        trajectory_id=pa.string(),
        verifier=pa.string(),  # name in the workspace
        verifier_hash=pa.string(),  # of its configuration and code
        times=pa.int32(),  # how often a group of the attempt had become stale: what was verified then may read otherwise now; null in rows from before it was counted: 0
        verifier_score=pa.int64(),  # 1e-6; null where the verifier failed
        reason=pa.string(),  # null, or why there is no score
        window=pa.string(),  # of the trajectory; null in rows from before it was kept, as in the tables below
        night=pa.string(),
    ),
    key=("trajectory_id", "verifier", "verifier_hash", "times", "window"),
    statistics=("trajectory_id", "window", "night"),
)

REWARDS = TableSpec(
    "rewards/rewards",
    _schema(
        trajectory_id=pa.string(),
        group_id=pa.string(),
        rubric_hash=pa.string(),
        reward_key=pa.string(),  # `<settings>.<inputs>`: hashes of rule, weights, verifiers and calibration; and of the group's scores. A change adds rows, nothing is overwritten
        rule=pa.string(),  # tests_first | tests_only | judge_only
        reward=pa.int64(),  # 1e-6; null with a reason
        verifier_score=pa.int64(),  # the minimum over the verifiers; null where there is none
        passed=pa.bool_(),  # verifier_score >= pass_at; null without a verdict
        ruler_score=pa.int64(),  # null where not judged
        reason=pa.string(),  # null, or one of reasons.REWARD_REASONS
        calibration_id=pa.string(),  # null: this judge and rubric were never calibrated
        sequence=pa.int64(),  # commit order among the rows of a window: of those with the rubric and settings in force, the newest counts
        window=pa.string(),  # of the group
        night=pa.string(),
    ),
    key=("trajectory_id", "group_id", "rubric_hash", "reward_key"),
    statistics=("trajectory_id", "group_id", "rubric_hash", "window", "night"),
)

LANES = TableSpec(
    "batches/lanes",
    _schema(
        trajectory_id=pa.string(),
        night=pa.string(),
        eligible_for=pa.string(),  # stage 3, from provenance alone
        eligible_reason=pa.string(),  # one of reasons.ELIGIBLE_REASONS
        lane=pa.string(),  # stage 5, once rewards are known
        lane_reason=pa.string(),  # one of reasons.LANE_REASONS, or eligible_reason where provenance alone decides
        group_id=pa.string(),  # null where it is in no sealed group
        window=pa.string(),  # of the trajectory
        batch_id=pa.string(),  # null where it is in no batch
        advantage=pa.float64(),  # null where the group has none
    ),
    key=("night", "trajectory_id"),
    statistics=("trajectory_id", "night"),
    partition="night",
)

CLUSTERS = TableSpec(
    "batches/clusters",
    _schema(
        night=pa.string(),
        lane=pa.string(),
        task_key=pa.string(),  # of a cluster with more groups than one night takes; other clusters are not listed
        cluster=pa.string(),  # the smallest task_key among tasks that are near-copies of each other, directly or through others
        num_tasks=pa.int32(),  # of the cluster that could train that night
        num_groups=pa.int32(),  # of the cluster in the night's batches
        num_waiting=pa.int32(),  # of the cluster that wait for later nights
    ),
    key=("night", "lane", "task_key"),
    statistics=("task_key", "cluster", "night"),
    partition="night",
)

CONSUMED = TableSpec(
    "batches/consumed",
    _schema(
        group_id=pa.string(),
        rubric_hash=pa.string(),
        batch_id=pa.string(),
        lane=pa.string(),
        again=pa.bool_(),  # frozen with --again from groups that were consumed before
        window=pa.string(),  # of the group
        night=pa.string(),
        names=_STRINGS,  # of the answers that trained: record ids, and claims `<format>:<call_ids>`; null in rows from before they were kept
        shared_answers=_STRINGS,  # and of those whose records several attempts share; null where there are none
    ),
    key=("group_id", "rubric_hash", "batch_id"),
    statistics=("group_id", "batch_id", "window", "night"),
)

CHECKPOINTS = TableSpec(
    "checkpoints/checkpoints",
    _schema(
        checkpoint_id=pa.string(),
        policy=pa.string(),  # name of the registered model
        version=pa.int64(),  # MLflow model version; policy_version is `<policy>@<version>`
        parent=pa.string(),  # checkpoint_id, null where it started from the base model
        run_id=pa.string(),
        batches=_STRINGS,
        lane=pa.string(),
        night=pa.string(),
        path=pa.string(),  # of the checkpoint folder, relative to the workspace
        adapter_sha256=pa.string(),
        rubric_hash=pa.string(),
        config_hash=pa.string(),
        code_version=pa.string(),
        mlflow_run_id=pa.string(),
        metrics=pa.string(),  # JSON, means over the run
        marks=_STRINGS,  # judge_only, again, …: marks that keep it from promoting itself
    ),
    key=("checkpoint_id",),
    statistics=("checkpoint_id", "night"),
)

EVALUATION = TableSpec(
    "evaluation/results",
    _schema(
        checkpoint_id=pa.string(),  # "base" for the policy without an adapter
        eval_set=pa.string(),  # held_out | audit
        eval_set_hash=pa.string(),  # of its tasks and verifiers
        task_key=pa.string(),
        task_id=pa.string(),
        attempt=pa.int32(),
        score=pa.int64(),  # 1e-6; null where harness or verifier failed
        passed=pa.bool_(),
        reason=pa.string(),  # null, or why there is no score
        num_sampled_tokens=pa.int64(),
        seconds=pa.float64(),
        attempt_id=pa.string(),  # of the recorder line, so that the answer itself can be found once landed
        night=pa.string(),
    ),
    key=("checkpoint_id", "eval_set", "eval_set_hash", "task_key", "attempt"),
    statistics=("checkpoint_id", "task_key", "night"),
    landing_columns=("seconds",),
)

SIGNALS = TableSpec(
    "monitors/signals",
    _schema(
        night=pa.string(),
        signal=pa.string(),
        value=pa.float64(),  # null where it could not be measured
        unit=pa.string(),  # share | count | reward | ratio | seconds
        state=pa.string(),  # ok | alarm | unmeasured
        detail=pa.string(),  # what it means and, for an alarm, what to do
    ),
    key=("night", "signal"),
    statistics=("night", "signal"),
    partition="night",
)

DECISIONS = TableSpec(
    "promotion/decisions",
    _schema(
        number=pa.int64(),  # 1, 2, …; the last row that names a champion is the champion (I13)
        policy=pa.string(),
        decision=pa.string(),  # promote | hold | rollback
        reason=pa.string(),  # one of reasons.DECISION_REASONS
        challenger=pa.string(),  # checkpoint_id; null where the night trained nothing
        measured_against=pa.string(),  # checkpoint_id of the champion then, or "base"
        champion=pa.string(),  # checkpoint_id of the champion after this decision, or "base"
        challenger_pass_rate=pa.float64(),
        champion_pass_rate=pa.float64(),
        difference=pa.float64(),  # mean over tasks of the paired difference
        lower_bound=pa.float64(),  # one-sided
        confidence=pa.float64(),
        num_tasks=pa.int64(),
        night=pa.string(),
        decided_at=_TIME,
    ),
    key=("policy", "number"),
    statistics=("challenger", "champion", "night"),
    landing_columns=("decided_at",),
)

LAKE_IDENTITY = TableSpec(
    "identity",
    _schema(fingerprint=pa.string(), made_at=_TIME),
    key=("fingerprint",),
    statistics=("fingerprint",),
    landing_columns=("made_at",),
)

TABLES: dict[str, TableSpec] = {
    spec.name: spec
    for spec in (
        RECORDS,
        QUARANTINE,
        TRAJECTORIES,
        ROLLOUTS,
        DUPLICATES,
        RENAMED,
        SPLITS,
        GROUPS,
        STALE,
        REQUESTS,
        NEAR,
        WANTED,
        JUDGEMENTS,
        VERDICTS,
        REWARDS,
        LANES,
        CLUSTERS,
        CONSUMED,
        CHECKPOINTS,
        EVALUATION,
        SIGNALS,
        DECISIONS,
        LAKE_IDENTITY,
    )
}
