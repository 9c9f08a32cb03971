-- Every checkpoint of a policy with its parent, the last decision of the gate about it, and whether it is the champion.
WITH decided AS (
    SELECT
        decisions.challenger,
        max_by(decisions.decision, decisions.number) AS decision,
        max_by(decisions.reason, decisions.number) AS reason,
        max_by(decisions.challenger_pass_rate, decisions.number) AS held_out_pass_rate,
        max_by(decisions.difference, decisions.number) AS difference
    FROM promotion.decisions AS decisions
    WHERE decisions.policy = $policy AND decisions.challenger IS NOT NULL
    GROUP BY decisions.challenger
)

SELECT
    checkpoints.policy || '@' || checkpoints.version AS policy_version,
    checkpoints.checkpoint_id = $champion AS champion,
    checkpoints.night,
    coalesce(parents.policy || '@' || parents.version, checkpoints.policy || '@0') AS parent,
    checkpoints.lane,
    checkpoints.batches,
    decided.held_out_pass_rate,
    decided.difference,
    decided.decision,
    decided.reason,
    checkpoints.marks,
    checkpoints.checkpoint_id
FROM checkpoints.checkpoints AS checkpoints
LEFT JOIN checkpoints.checkpoints AS parents ON parents.checkpoint_id = checkpoints.parent
LEFT JOIN decided ON decided.challenger = checkpoints.checkpoint_id
WHERE checkpoints.policy = $policy
ORDER BY checkpoints.version, checkpoints.checkpoint_id
