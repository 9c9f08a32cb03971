-- Bundles that a replay reads again: built before, and made by another parser version than the one in force, named under other
-- rules ($task_rules: those in force) or not readable then; with $every all that were built; and those that a record enters or leaves, built or not. $format null: of all formats;
-- $first, $last null: of all days. `first_day` and `last_day` are those of the stored rows (null where there are none),
-- `moved` says that a record enters or leaves.
-- Handed in: current (format, parser_version), placed (record_id, bundle_key, day, skip_reason: where a replay would put it).
WITH made AS (
    SELECT bundle_key, day, coalesce(parser_version, 0) AS parser_version, FALSE AS unreadable,
        task_rules IS DISTINCT FROM $task_rules AS renamed
    FROM trajectories.trajectories
    UNION ALL
    SELECT bundle_key, day, coalesce(parser_version, 0) AS parser_version, kind = 'unreadable' AS unreadable, FALSE AS renamed
    FROM trajectories.duplicates
),
built AS (
    SELECT
        bundle_key,
        min(day) AS first_day,
        max(day) AS last_day,
        min(parser_version) AS lowest,
        max(parser_version) AS highest,
        bool_or(unreadable) AS unreadable,
        bool_or(renamed) AS renamed
    FROM made
    GROUP BY bundle_key
),
standing AS (
    SELECT
        r.format,
        r.bundle_key AS left_bundle,
        coalesce(p.bundle_key, r.bundle_key) AS bundle_key,
        coalesce(p.day, r.day) AS day,
        CASE WHEN p.record_id IS NULL THEN r.skip_reason ELSE p.skip_reason END AS skip_reason,
        p.record_id IS NOT NULL AS moved,
        strlen(r.raw) AS num_bytes
    FROM landing.records AS r
    LEFT JOIN placed AS p ON p.record_id = r.record_id
),
touched AS (
    SELECT bundle_key FROM standing WHERE moved
    UNION
    SELECT left_bundle AS bundle_key FROM standing WHERE moved
),
logged AS (
    SELECT
        bundle_key,
        min(format) AS format,
        bool_or(($first IS NULL OR day >= $first) AND ($last IS NULL OR day <= $last)) AS asked,
        CAST(sum(num_bytes) AS BIGINT) AS num_bytes
    FROM standing
    WHERE skip_reason IS NULL AND ($format IS NULL OR format = $format)
    GROUP BY bundle_key
),
behind AS (
    SELECT b.bundle_key
    FROM built AS b
    INNER JOIN logged AS l ON l.bundle_key = b.bundle_key
    INNER JOIN current AS c ON c.format = l.format
    WHERE l.asked AND ($every OR b.unreadable OR b.renamed OR b.lowest <> c.parser_version OR b.highest <> c.parser_version)
    UNION
    SELECT bundle_key FROM touched
)
SELECT
    w.bundle_key,
    l.format,
    coalesce(l.num_bytes, 0) AS num_bytes,
    b.first_day,
    b.last_day,
    w.bundle_key IN (SELECT t.bundle_key FROM touched AS t) AS moved
FROM behind AS w
LEFT JOIN built AS b ON b.bundle_key = w.bundle_key
LEFT JOIN logged AS l ON l.bundle_key = w.bundle_key
ORDER BY b.last_day, w.bundle_key
