-- I7: rows whose mask does not fit, marks nothing or everything, or whose marked tokens lack a logprob in lane grpo;
-- and trajectories whose marked tokens in one batch are not as many as were sampled, as far as their log still holds all token
-- ids (redacting anew takes them away) and no replay has changed them since. That no second batch holds them is I14.
WITH lengths AS (
    SELECT
        row_hash,
        batch_id,
        trajectory_id,
        lane,
        len(token_ids) AS num_tokens,
        len(sampled) AS num_mask,
        coalesce(list_sum(list_transform(sampled, lambda marked: CAST(marked AS INTEGER))), 0) AS num_sampled,
        coalesce(len(list_filter(behaviour_logprobs, lambda logprob: logprob IS NOT NULL)), 0) AS num_logprobs
    FROM batch_rows
    WHERE NOT struck
),
marked AS (
    SELECT batch_id, trajectory_id, sum(num_sampled) AS num_sampled FROM lengths GROUP BY batch_id, trajectory_id
)
SELECT row_hash AS broken
FROM lengths
WHERE num_mask <> num_tokens OR num_sampled = 0 OR num_sampled = num_tokens OR (lane = 'grpo' AND num_logprobs <> num_sampled)
UNION
SELECT marked.trajectory_id AS broken
FROM marked
JOIN trajectories.trajectories AS trajectories USING (trajectory_id)
WHERE
    marked.num_sampled <> trajectories.num_sampled_tokens
    AND trajectories.exact_tokens IS NOT FALSE
    AND marked.trajectory_id NOT IN (
        SELECT sealed.trajectory_id
        FROM groups.groups AS sealed
        JOIN groups.stale AS stale ON stale.group_id = sealed.group_id
        WHERE sealed.role = 'member'
    )
ORDER BY broken
