-- How many train tasks are near-copies of held-out or audit tasks, and how many of those had trained before that was known.
-- Parameter: $near_threshold (1e-6).
SELECT
    count(*) AS near_held_out,
    count(*) FILTER (WHERE trained) AS near_trained
FROM groups.near
WHERE similarity >= $near_threshold
ORDER BY near_held_out
