-- Record ids that stand more than once in landing/records or landing/quarantine, which exactly-once forbids (I2).
SELECT 'landing/records' AS table_name, record_id, count(*)::BIGINT AS num_rows
FROM landing.records
GROUP BY record_id
HAVING count(*) > 1
UNION ALL
SELECT 'landing/quarantine' AS table_name, record_id, count(*)::BIGINT AS num_rows
FROM landing.quarantine
GROUP BY record_id
HAVING count(*) > 1
ORDER BY table_name, record_id
