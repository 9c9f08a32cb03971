-- Stored replies of a judge about the chosen groups: the cache.
SELECT
    stored.judgement_id,
    stored.group_id,
    stored.attempt,
    stored.status,
    stored.scores,
    stored.night
FROM rewards.judgements AS stored
INNER JOIN chosen ON chosen.group_id = stored.group_id
WHERE stored.rubric_hash = $rubric_hash AND stored.judge = $judge
ORDER BY stored.judgement_id, stored.attempt
