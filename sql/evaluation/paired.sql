-- The gate's rows: per held-out task, both policies' passes over the attempts that both have a score for.
-- An attempt that failed on one side (no score) leaves the pair on both: a failure is no number.
SELECT
    challenger.task_key,
    count(*) AS num_attempts,
    count(*) FILTER (WHERE challenger.passed) AS challenger_passes,
    count(*) FILTER (WHERE champion.passed) AS champion_passes
FROM evaluation.results AS challenger
INNER JOIN evaluation.results AS champion
    ON champion.task_key = challenger.task_key
   AND champion.attempt = challenger.attempt
   AND champion.eval_set = challenger.eval_set
   AND champion.eval_set_hash = challenger.eval_set_hash
WHERE challenger.checkpoint_id = $challenger
  AND champion.checkpoint_id = $champion
  AND challenger.eval_set = $eval_set
  AND challenger.eval_set_hash = $eval_set_hash
  AND challenger.passed IS NOT NULL
  AND champion.passed IS NOT NULL
GROUP BY challenger.task_key
ORDER BY challenger.task_key
