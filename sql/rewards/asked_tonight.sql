-- Groups that some judge was asked about on this night.
SELECT DISTINCT group_id
FROM rewards.judgements
WHERE night = $night
ORDER BY group_id
