-- How often a policy passes each task of a set; tasks whose answers all failed (no score) have no rate.
SELECT
    results.task_key,
    count(results.passed) AS num_scored,
    count(*) - count(results.passed) AS num_failures,
    count(*) AS num_answers,
    avg(cast(results.passed AS integer)) AS pass_rate
FROM evaluation.results AS results
WHERE results.checkpoint_id = $checkpoint_id
  AND results.eval_set = $eval_set
  AND results.eval_set_hash = $eval_set_hash
GROUP BY results.task_key
ORDER BY results.task_key
