-- Tasks of a set that a policy has not answered as often as asked; failures count as answered, so that they are not run again.
-- Handed in: asked (task_key).
SELECT asked.task_key, count(results.attempt) AS num_held
FROM asked
LEFT JOIN evaluation.results AS results
    ON results.task_key = asked.task_key
   AND results.checkpoint_id = $checkpoint_id
   AND results.eval_set = $eval_set
   AND results.eval_set_hash = $eval_set_hash
GROUP BY asked.task_key
HAVING count(results.attempt) < $num_attempts
ORDER BY asked.task_key
