"""The enumerated words of pipelines/reasons.py as a person would say them; a test holds that none is missing."""

from __future__ import annotations

SKIPPED = {
    "meta": "it is about the attempt and no part of it: settings, titles, counters, snapshots",
    "interface": "it shows what a screen showed of something that another record holds",
    "duplicate_view": "it holds the same content as another record, under a second type",
    "judge_call": "it is a call that scored or titled, none of the agent's",
    "masked": "its own harness took it out: a row that must not be learned from",
}
QUARANTINED = {
    "bad_json": "it is no JSON value",
    "bad_utf8": "it is no UTF-8 text",
    "wrong_shape": "it is JSON, but not what records of this format look like",
    "too_long": "it is longer than what is read at once",
    "unknown_format": "no format recognises the file",
    "unreadable": "the parser could not read the records that belong together with it",
}
LEFT_OUT = {
    "exact": "a copy",
    "superseded": "an older state of a message that was written again",
    "unmatched": "a report on an attempt that was not logged",
    "unanswered": "no call to the model answered it",
    "duplicate_view": "shows what other records hold",
    "unreadable": "its parser could not read it: `nightshift quarantine`",
    "no_turns": "an attempt that holds not one turn",
    "other_log": "another log tells the same attempt, and is kept",
    "unfinished": "the beginning of an attempt whose later state was logged too",
}
ELIGIBLE = {
    "exact_tokens": "our own policy wrote it, and the sampler's token ids and logprobs were logged",
    "ids_logged": "our own policy wrote it, and the sampler's token ids were logged; its checkpoint, still held, can give the logprobs",
    "ids_rendered": "our own policy wrote it, the logged token counts prove its token ids; its checkpoint, still held, can give the logprobs",
    "ids_missing": "our own policy wrote it, but token ids or logprobs were not logged, or under a secret that was taken out",
    "other_model": "another model wrote it",
    "unknown_model": "the log names no model",
    "unknown_policy_version": "its policy version is not known here",
    "off_line": "its policy version is not on the parent chain of tonight's run",
    "stale": "its policy version is further back than groups.max_policy_lag",
    "too_old": "it was logged more than groups.max_age_days before the night",
    "split_pending": "its task has no split yet; the next night draws one, where rules have changed once `nightshift replay --apply` was run",
    "held_out_task": "its task is held out for evaluation",
    "audit_task": "its task is kept for audits",
    "near_held_out": "its task is a near-copy of one that is held out or kept for audits",
    "evaluation_rollout": "it was run for an evaluation",
    "harness_fault": "the harness failed, not the policy",
    "no_sampled_turn": "no turn of it was sampled by a policy that was logged: a demonstration, or nothing was answered",
    "truncated": "its last answer was cut off at the limit of tokens, so nobody knows how it would have ended",
}
LANE = ELIGIBLE | {
    "trained": "it is in the batch of that night",
    "consumed": "a batch holds its group or one of its answers already, and an attempt trains once",
    "no_siblings": "no other attempt at its task that could be used stands beside it in a group",
    "late": "its siblings were sealed before it came, and no other came with it",
    "other_run": "the other attempts at its task belong to other runs, and the workspace keeps runs apart",
    "other_policy": "the other attempts at its task are of other policies, or of versions too far from its own",
    "context_mismatch": "its task has other attempts, each under another prompt, tool schema or snapshot",
    "stale_group": "a member of its group was changed or removed since the group was sealed",
    "no_spread": "all rewards of its group are equal, so nothing tells its siblings apart",
    "too_few": "only a judge could order its group, and it has fewer members than groups.min_judged",
    "uncalibrated_judge": "only the judge tells its group apart, and this judge was never calibrated",
    "no_verdict": "no verifier gave it a verdict",
    "no_reward": "it has no reward",
    "cluster_full": "the night took as many groups of its task and the near-copies of it as a night takes; it waits",
    "row_refused": "its logged tokens do not make a training row",
    "lane_off": "its lane is not in training.lanes",
    "not_passed": "the lane sft takes only what passed",
    "all_fail": "no attempt of its group passed",
}
FAULT = {
    "harness_error": "the run broke",
    "aborted": "somebody or something stopped it",
    "timeout": "the infrastructure's time ran out",
    "model_error": "the model's server failed",
    "evaluation_failed": "it ended, but its tests could not run",
}
TASK_SOURCE = {
    "log": "the log names it",
    "rule": "a rule of the workspace names it",
    "redacted": "a rule names it, but by text that redaction took, so its first request does",
    "request": "its first request is the task",
    "nothing": "the log says neither its name nor what was asked, so it stands alone",
}
LINK = {
    "subagent": "a tool call of it started this one",
    "branch": "this one goes on from its middle",
    "compaction": "this one goes on from it under a shortened context",
    "continuation": "this one goes on where its file ended",
}
SEALED = {
    "full": "the group was full",
    "judged": "a night scored what was there",
    "closed": "its window was over",
}
REWARD = {
    "no_verdict": "its siblings have a verdict and it has none",
    "no_score": "neither tests nor a judge with a calibration scored it",
    "too_few": "its group has too few members for a judge to order",
    "verifier_failed": "its verifier failed",
    "judge_failed": "the judge gave no usable answer",
    "harness_fault": "the harness failed, not the policy",
}
WANTED = {
    "other_policy": "every attempt at it is another model's: our own policy has nothing to compare yet",
    "no_siblings": "no other attempt stands beside it",
    "context_mismatch": "its attempts ran under different contexts: each under another, or top-ups under none that production used",
    "no_spread": "all rewards of its groups are equal",
}
TOP_UP_STOP = {
    "off": "[groups] top_up is 0",
    "no_harness": "no harness is configured",
    "nothing_wanted": "no earlier night listed a task that can be run again",
    "done": "everything on the list was run",
    "rollouts": "[groups] top_up rollouts were run",
    "tokens": "[top_up] max_tokens were used",
    "minutes": "[top_up] max_minutes were used",
    "failed": "the policy server or the harness failed",
}
TOP_UP_SKIP = {
    "redacted": "what was asked holds a secret that was taken out",
    "no_request": "the log does not say from the beginning what was asked",
    "siblings_wait": "enough attempts wait to be sealed already",
}


def said(words: dict[str, str], word: str | None) -> str:
    """A word with its meaning behind it; one that an older or newer nightshift wrote stands alone."""
    if word is None:
        return "unknown"
    return f"{word}: {words[word]}" if word in words else word
