-- How many trajectories got their task, context and run under other rules than those in force. Parameter: $task_rules.
SELECT count(*) AS num_trajectories
FROM trajectories.trajectories
WHERE task_rules IS DISTINCT FROM $task_rules
ORDER BY num_trajectories
