-- How many pieces are in quarantine, by reason; `unreadable` are the records whose bundle no parser could read.
SELECT reason, count(*)::BIGINT AS num_pieces
FROM (
    SELECT reason FROM landing.quarantine
    UNION ALL
    SELECT kind AS reason FROM trajectories.duplicates WHERE kind = 'unreadable'
)
GROUP BY reason
ORDER BY num_pieces DESC, reason
