-- Groups worth a judge's time, the best first: asked before by this judge (its reply may be stored), then mixed ones, where
-- its order can be held against the tests. Consumed groups train nothing any more; identical siblings have no order, with or
-- without an anchor beside them; a group that tests do not tell apart needs $min_judged members.
-- Parameters: $rubric_hash, $judge, $min_judged.
WITH asked AS (
    SELECT DISTINCT group_id
    FROM rewards.judgements
    WHERE rubric_hash = $rubric_hash AND judge = $judge
)
SELECT
    awaiting.group_id,
    bool_or(asked.group_id IS NOT NULL) AS asked_before,
    count(DISTINCT scored.verifier_score) > 1 AS mixed
FROM awaiting
LEFT JOIN scored ON scored.group_id = awaiting.group_id AND scored.trajectory_id = awaiting.trajectory_id
LEFT JOIN asked ON asked.group_id = awaiting.group_id
ANTI JOIN batches.consumed AS consumed ON consumed.group_id = awaiting.group_id
WHERE NOT awaiting.fault
GROUP BY awaiting.group_id
HAVING
    count(DISTINCT awaiting.content_id) FILTER (WHERE awaiting.role = 'member') > 1
    AND (count(*) FILTER (WHERE awaiting.role = 'member') >= $min_judged OR count(DISTINCT scored.verifier_score) > 1)
ORDER BY asked_before DESC, mixed DESC, awaiting.group_id
