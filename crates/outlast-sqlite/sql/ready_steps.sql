-- Whether a queue has any queued step: most have none, and then a claim need not look for each of its steps.
SELECT 1 FROM runs
WHERE queue = ?1 AND workflow >= 'step:' AND workflow < 'step;' AND ready_at IS NOT NULL
LIMIT 1
