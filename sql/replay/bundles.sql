-- Bundles that a replay reads again: built before, and made by another parser version than the one in force or not readable
-- then; with $every all that were built. $format null: of all formats; $first, $last null: of all days. `first_day` and
-- `last_day` are those of the stored rows.
-- Handed in: current (format, parser_version).
WITH made AS (
    SELECT bundle_key, day, coalesce(parser_version, 0) AS parser_version, FALSE AS unreadable FROM trajectories.trajectories
    UNION ALL
    SELECT bundle_key, day, coalesce(parser_version, 0) AS parser_version, kind = 'unreadable' AS unreadable
    FROM trajectories.duplicates
),
built AS (
    SELECT
        bundle_key,
        min(day) AS first_day,
        max(day) AS last_day,
        min(parser_version) AS lowest,
        max(parser_version) AS highest,
        bool_or(unreadable) AS unreadable
    FROM made
    GROUP BY bundle_key
),
logged AS (
    SELECT
        bundle_key,
        min(format) AS format,
        bool_or(($first IS NULL OR day >= $first) AND ($last IS NULL OR day <= $last)) AS asked,
        CAST(sum(strlen(raw)) AS BIGINT) AS num_bytes
    FROM landing.records
    WHERE skip_reason IS NULL AND ($format IS NULL OR format = $format)
    GROUP BY bundle_key
)
SELECT b.bundle_key, l.format, l.num_bytes, b.first_day, b.last_day
FROM built AS b
INNER JOIN logged AS l ON l.bundle_key = b.bundle_key
INNER JOIN current AS c ON c.format = l.format
WHERE l.asked AND ($every OR b.unreadable OR b.lowest <> c.parser_version OR b.highest <> c.parser_version)
ORDER BY b.last_day, b.bundle_key
