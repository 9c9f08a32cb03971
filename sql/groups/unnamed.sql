-- How many groups were consumed before the names of what trained were kept.
SELECT count(*) AS num_groups
FROM batches.consumed
WHERE names IS NULL
ORDER BY num_groups
