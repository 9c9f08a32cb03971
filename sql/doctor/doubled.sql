-- Ids that stand more than once in landing/records, landing/quarantine or trajectories/trajectories (I2).
SELECT 'landing/records' AS table_name, record_id, count(*)::BIGINT AS num_rows
FROM landing.records
GROUP BY record_id
HAVING count(*) > 1
UNION ALL
SELECT 'landing/quarantine' AS table_name, record_id, count(*)::BIGINT AS num_rows
FROM landing.quarantine
GROUP BY record_id
HAVING count(*) > 1
UNION ALL
SELECT 'trajectories/trajectories' AS table_name, trajectory_id AS record_id, count(*)::BIGINT AS num_rows
FROM trajectories.trajectories
GROUP BY trajectory_id
HAVING count(*) > 1
ORDER BY table_name, record_id
