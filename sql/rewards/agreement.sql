-- How often the judge orders two siblings with different verdicts as the tests do; a tie counts half.
SELECT
    count(*) AS num_pairs,
    sum(CASE
        WHEN (better.ruler_score > worse.ruler_score) THEN 2
        WHEN better.ruler_score = worse.ruler_score THEN 1
        ELSE 0
    END) AS half_points
FROM scores AS better
INNER JOIN scores AS worse ON worse.group_id = better.group_id AND worse.verifier_score < better.verifier_score
WHERE better.ruler_score IS NOT NULL AND worse.ruler_score IS NOT NULL
ORDER BY num_pairs
