-- What the newest night wants, the most useful first.
SELECT "rank", task_id, harness, reason, num_attempts, num_own, score, task_key, night
FROM groups.wanted
WHERE night = (SELECT max(w.night) FROM groups.wanted AS w)
ORDER BY "rank", task_key
