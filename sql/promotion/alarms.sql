-- Signals that stand in the way of a promotion on a night.
SELECT signals.signal, signals.detail
FROM monitors.signals AS signals
WHERE signals.night = $night AND signals.state = 'alarm'
ORDER BY signals.signal
