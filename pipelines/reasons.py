"""Every enumerated word that a table may hold: purposes, splits, and the reasons why something went where it went.

A count per reason is printed every night, so a reason is added here first and used second.
"""

from __future__ import annotations

PURPOSES = ("production", "top_up", "evaluation")
SPLIT_NAMES = ("train", "held_out", "audit")
SKIP_REASONS = (
    "meta",  # about the session, not part of it: settings, titles, counters, snapshots
    "interface",  # what a screen showed of something that another record holds
    "duplicate_view",  # the same content under a second type of record (a span around a call)
    "judge_call",  # a call that scored or titled, not one of the agent's
    "masked",  # taken out by its own harness: a row that must not be learned from
)
QUARANTINE_REASONS = (
    "bad_json",  # not a JSON value
    "bad_utf8",
    "wrong_shape",  # JSON, but not what this format's records look like
    "too_long",  # a line beyond what is read at once (landing/jsonl.py)
    "unknown_format",  # no format recognises the file; one row per file
)
DUPLICATE_KINDS = (  # why a record is in no trajectory's provenance
    "exact",
    "superseded",  # an older state of a message that was written again as it grew
    "unmatched",  # a report on an attempt that was not logged, or on one of several
    "unanswered",  # a prompt or a note that no call to the model answered and no attempt goes on from
    "duplicate_view",  # shows what other records hold: a span around calls, a trace's header
    "no_turns",  # the attempt that it is says nothing: a voice run without text, a run that broke before its first message
    "other_log",  # tells an attempt that another log tells as well, and better: the keeper
    "unfinished",  # tells the beginning of an attempt whose later state is logged too: the keeper
    "unreadable",  # its bundle could not be read by the parser: `nightshift replay` tries again
)
TASK_SOURCES = (  # what named an attempt's task
    "log",  # the log's own task id
    "rule",  # a rule of the workspace: `task` of [groups] or of its source
    "redacted",  # a rule, but redaction took the name before anybody kept its identity: its first request is the task
    "request",  # its first request, without what is volatile
    "nothing",  # neither a name nor a request: it is a task by itself
)
LINKS = (
    "subagent",  # started by a tool call of the parent
    "branch",  # goes on from the middle of the parent: another answer, an edited message, a retry
    "compaction",  # goes on from the parent under a shortened context
    "continuation",  # goes on where the parent's file ended
)
FAULTS = (  # the harness's, not the policy's: such an attempt is no failed attempt
    "harness_error",  # the run broke
    "aborted",  # somebody or something stopped it
    "timeout",  # of the infrastructure
    "model_error",  # the model's server failed
    "evaluation_failed",  # it ended, but was never scored: the tests could not run
)
KNOWN_IDS = (
    "logged",
    "rendered",  # made from the text, whose logged token counts prove them
)
ELIGIBLE_REASONS = (
    "exact_tokens",  # own policy, sampler's ids and logprobs, known version within the lag
    "ids_logged",  # own policy, the sampler's ids without (honest) logprobs, its checkpoint is still held
    "ids_rendered",  # the same with ids that the logged token counts prove
    "ids_missing",  # own policy, known version, but ids or logprobs were not logged, or were logged under a secret
    "other_model",
    "unknown_model",  # the log names no model
    "unknown_policy_version",
    "off_line",  # a version that is not on the parent chain of tonight's run
    "stale",  # lag above groups.max_policy_lag
    "too_old",  # logged more than groups.max_age_days before the night
    "split_pending",  # its task has no split yet: nothing may be trained on it before it has one
    "held_out_task",
    "audit_task",
    "near_held_out",  # its task is a near-copy of a held-out or audit task
    "evaluation_rollout",
    "harness_fault",
    "no_sampled_turn",
    "truncated",  # its last answer was cut off: nobody knows how it would have ended
)
LANE_REASONS = (  # where provenance alone decides, the lane's reason is one of ELIGIBLE_REASONS
    "trained",  # in the batch of this night
    "consumed",  # in a batch of an earlier night, or it holds an answer that trained there under another name (I14)
    "no_siblings",  # in no sealed group
    "late",  # its siblings were sealed before it came, and no other came with it
    "other_run",  # its siblings belong to other runs, which the workspace keeps apart (groups.run)
    "other_policy",  # its siblings are other policies' attempts, or too distant versions of its own
    "context_mismatch",  # its task has other attempts, each under another prompt, tool schema or snapshot (I4)
    "stale_group",  # a replay changed or removed a member of its group
    "no_spread",  # all rewards of its group are equal
    "too_few",  # only a judge could order its group, and it has fewer members than groups.min_judged
    "uncalibrated_judge",  # only the judge tells the group apart, and it was never calibrated
    "no_verdict",  # its siblings have a verdict and it has none
    "no_reward",
    "cluster_full",  # the night took as many groups of its task and the near-copies of it as it takes
    "row_refused",  # its logged tokens do not make a training row (I7)
    "lane_off",  # its lane is not in training.lanes
    "not_passed",  # sft takes winners only
    "all_fail",
)
STALE_REASONS = (  # why a sealed group trains no more
    "member_changed",  # a replay, or a log that was written anew, made another row of a member
    "member_removed",  # there is no such trajectory any more
)
WANTED_REASONS = (
    "other_policy",  # no attempt at it is our own policy's
    "no_siblings",
    "context_mismatch",  # our own attempts each ran under another context, or top-ups ran under none that production asked it under
    "no_spread",
)
TOP_UP_STOPS = (  # why a night's top-up started no more rollouts
    "off",  # groups.top_up is 0
    "no_harness",
    "nothing_wanted",  # no earlier night listed a task that can be run again
    "done",  # everything on the list was run
    "rollouts",  # groups.top_up
    "tokens",  # top_up.max_tokens
    "minutes",  # top_up.max_minutes
    "failed",  # the policy server is gone, or the harness fails at every attempt
)
TOP_UP_SKIPS = (  # why a wanted task was not run again
    "redacted",  # what was asked holds a secret that was taken out: it would be asked otherwise than in production
    "no_request",  # no attempt was logged from its beginning, or none says what was asked
    "siblings_wait",  # enough attempts wait already: the night seals them
)
REWARD_REASONS = ("no_verdict", "no_score", "too_few", "verifier_failed", "judge_failed", "harness_fault")
DECISION_REASONS = (
    "better",  # promote: lower bound of the paired difference above 0
    "not_better",
    "too_few_tasks",
    "nothing_trained",
    "no_harness",
    "alarm",
    "by_hand",
    "marked",  # trained under a rule that cannot promote by itself
)
