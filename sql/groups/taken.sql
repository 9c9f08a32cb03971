-- Trajectories that hold an answer which a batch trained, with the group that it trained in (I14). A trajectory's id does not tell:
-- a mended parser places records in another bundle, a longer chain takes the name of its attempt, an earlier log turns out to
-- own the answers. Answers are known by their records (also older states and copies that it stands for), by claims on them
-- that no other owns, and where several attempts share a record by `shared_answers`.
-- Where an answer of a shared record trained that nobody holds any more, its record was read otherwise then: all of it is taken.
-- Batches that an older nightshift consumed have no names: those of the members as they are now stand in for them.
-- No rows for what a group binds that another night consumed: its id says enough. Parameter: $night.
WITH members AS (
    SELECT g.trajectory_id, g."role", c.group_id, c.night, c.names IS NULL AS unnamed
    FROM batches.consumed AS c
    INNER JOIN groups.groups AS g ON g.group_id = c.group_id
),
older AS (
    SELECT DISTINCT m.trajectory_id, m.group_id, m.night
    FROM members AS m
    WHERE m.unnamed AND m."role" = 'member'
),
attempts AS NOT MATERIALIZED (
    SELECT
        t.trajectory_id,
        t.record_ids,
        t.shared_answers,
        CASE WHEN t.shared_answers IS NULL THEN
            list_transform(
                list_filter(t.call_ids, lambda c: NOT list_contains(coalesce(t.copied_call_ids, []), c)),
                lambda c: t.format || ':' || c
            )
        END AS claims
    FROM trajectories.trajectories AS t
),
free AS NOT MATERIALIZED (
    SELECT a.trajectory_id, a.record_ids, a.shared_answers, a.claims
    FROM attempts AS a
    ANTI JOIN (SELECT m.trajectory_id FROM members AS m WHERE m.night <> $night) AS bound ON bound.trajectory_id = a.trajectory_id
),
held AS NOT MATERIALIZED (
    SELECT f.trajectory_id, unnest(list_concat(f.record_ids, f.shared_answers, f.claims)) AS name FROM free AS f
    UNION ALL
    SELECT d.trajectory_id, d.record_id AS name
    FROM trajectories.duplicates AS d
    WHERE d.kind IN ('exact', 'superseded') AND d.trajectory_id IS NOT NULL
),
trained AS (
    SELECT c.group_id, c.night, unnest(c.names) AS name FROM batches.consumed AS c
    UNION ALL
    SELECT o.group_id, o.night, unnest(list_concat(a.record_ids, a.shared_answers, a.claims)) AS name
    FROM older AS o
    INNER JOIN attempts AS a ON a.trajectory_id = o.trajectory_id
),
shared AS (
    SELECT t.group_id, t.night, t.name
    FROM trained AS t
    WHERE contains(t.name, '+') AND NOT contains(split_part(t.name, '+', 1), ':')
),
spent AS (
    SELECT t.group_id, t.night, t.name FROM trained AS t
    UNION ALL
    SELECT s.group_id, s.night, split_part(s.name, '+', 1) AS name
    FROM shared AS s
    ANTI JOIN (SELECT unnest(x.shared_answers) AS name FROM trajectories.trajectories AS x) AS now_held ON now_held.name = s.name
)
SELECT h.trajectory_id, s.group_id, min(s.night) AS night
FROM held AS h
INNER JOIN spent AS s ON s.name = h.name
ANTI JOIN (SELECT m.trajectory_id FROM members AS m WHERE m.night <> $night) AS bound ON bound.trajectory_id = h.trajectory_id
GROUP BY h.trajectory_id, s.group_id
ORDER BY h.trajectory_id, s.group_id
