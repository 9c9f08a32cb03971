-- What the newest list of an earlier night wants of our own harness, the most useful first, $num_tasks at most, with what
-- production asked last: the newest attempt that was logged from its beginning (null turns where there is none).
-- A task that is not in the train split by now is left out. Parameters: $night, $harness, $num_tasks.
WITH listed AS (
    SELECT w.*
    FROM groups.wanted AS w
    INNER JOIN groups.splits AS s ON s.task_key = w.task_key AND s.split = 'train'
    WHERE
        w.night = (SELECT max(n.night) FROM groups.wanted AS n WHERE n.night < $night)
        AND w.harness = $harness
    ORDER BY w."rank"
    LIMIT $num_tasks
),
asked AS (
    SELECT t.task_key, t.turns, t.tools
    FROM trajectories.trajectories AS t
    WHERE
        t.task_key IN (SELECT l.task_key FROM listed AS l)
        AND t.purpose = 'production'
        AND t.fault IS NULL
        AND t.num_sampled_turns > 0
        AND (t.link IS NULL OR t.link = 'subagent')
    QUALIFY row_number() OVER (
        PARTITION BY t.task_key ORDER BY t.ended_at DESC NULLS LAST, t.day DESC, t.trajectory_id
    ) = 1
)
SELECT
    l."rank",
    l.task_key,
    l.task_id,
    coalesce(l.num_waiting, 0) AS num_waiting,
    l.night,
    a.turns,
    a.tools
FROM listed AS l
LEFT JOIN asked AS a ON a.task_key = l.task_key
ORDER BY l."rank"
