-- Whether a queue contains any queued step. Usually it contains none, and then a claim does not search for each step.
SELECT 1 FROM runs
WHERE queue = ?1 AND workflow >= 'step:' AND workflow < 'step;' AND ready_at IS NOT NULL
LIMIT 1
