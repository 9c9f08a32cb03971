-- How many pieces are in quarantine, by reason.
SELECT reason, count(*)::BIGINT AS num_pieces
FROM landing.quarantine
GROUP BY reason
ORDER BY num_pieces DESC, reason
