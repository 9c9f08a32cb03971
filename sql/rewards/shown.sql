-- What a judge is shown of the chosen groups: turns and tools of all that did not end in a harness fault, anchors among them.
SELECT
    awaiting.group_id,
    awaiting.trajectory_id,
    attempts.turns,
    attempts.tools
FROM awaiting
INNER JOIN chosen ON chosen.group_id = awaiting.group_id
INNER JOIN trajectories.trajectories AS attempts ON attempts.trajectory_id = awaiting.trajectory_id
WHERE NOT awaiting.fault
ORDER BY awaiting.group_id, awaiting.trajectory_id
