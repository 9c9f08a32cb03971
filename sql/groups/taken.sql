-- Trajectories that hold an answer which a batch trained, with the group that it trained in (I14). A trajectory's id does not tell:
-- a mended parser places records in another bundle, a longer chain takes the name of its attempt, an earlier log turns out to
-- own the answers. Answers are known by their records (also older states, copies and other logs that one stands for), by claims on them
-- that no other owns, and where several attempts share a record by `shared_answers`.
-- Where such an answer trained and nobody holds it any more, its record was read otherwise then: all of it is taken.
-- Batches that an older nightshift consumed have no names: those of the members as they are now stand in for them, with
-- all claims, since nobody knows which of them they owned then.
-- No rows for members of groups that another night than $night consumed: their ids say enough. Parameter: $night.
WITH members AS (
    SELECT g.trajectory_id, g."role", c.group_id, c.night, c.names IS NULL AS unnamed
    FROM batches.consumed AS c
    INNER JOIN groups.groups AS g ON g.group_id = c.group_id
),
bound AS (
    SELECT m.trajectory_id FROM members AS m WHERE m.night <> $night
),
attempts AS NOT MATERIALIZED (
    SELECT
        t.trajectory_id,
        list_concat(
            t.record_ids,
            t.shared_answers,
            CASE WHEN t.shared_answers IS NULL THEN
                list_transform(
                    list_filter(t.call_ids, lambda c: NOT list_contains(coalesce(t.copied_call_ids, []), c)),
                    lambda c: t.format || ':' || c
                )
            END
        ) AS names
    FROM trajectories.trajectories AS t
),
held AS NOT MATERIALIZED (
    SELECT a.trajectory_id, unnest(a.names) AS name
    FROM attempts AS a
    ANTI JOIN bound AS b ON b.trajectory_id = a.trajectory_id
    UNION ALL
    SELECT d.trajectory_id, d.record_id AS name
    FROM trajectories.duplicates AS d
    ANTI JOIN bound AS b ON b.trajectory_id = d.trajectory_id
    WHERE d.kind IN ('exact', 'superseded', 'other_log', 'unfinished') AND d.trajectory_id IS NOT NULL
),
older AS (
    SELECT DISTINCT m.trajectory_id, m.group_id FROM members AS m WHERE m.unnamed AND m."role" = 'member'
),
shared AS (
    SELECT c.group_id, unnest(c.shared_answers) AS name
    FROM batches.consumed AS c
    WHERE c.shared_answers IS NOT NULL
),
trained AS NOT MATERIALIZED (
    SELECT c.group_id, unnest(list_concat(c.names, c.shared_answers)) AS name FROM batches.consumed AS c
    UNION ALL
    SELECT
        o.group_id,
        unnest(list_concat(t.record_ids, t.shared_answers, list_transform(t.call_ids, lambda c: t.format || ':' || c))) AS name
    FROM older AS o
    INNER JOIN trajectories.trajectories AS t ON t.trajectory_id = o.trajectory_id
    UNION ALL
    SELECT s.group_id, split_part(s.name, '+', 1) AS name
    FROM shared AS s
    ANTI JOIN (SELECT unnest(t.shared_answers) AS name FROM trajectories.trajectories AS t) AS now_held ON now_held.name = s.name
    WHERE NOT contains(split_part(s.name, '+', 1), ':')
)
SELECT DISTINCT h.trajectory_id, t.group_id
FROM held AS h
INNER JOIN trained AS t ON t.name = h.name
ORDER BY h.trajectory_id, t.group_id
