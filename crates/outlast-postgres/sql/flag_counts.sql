-- The number of runs that wait for the next attempt of a step, and of runs that were asked to stop and have not ended; each
-- counted up to a limit.
SELECT (SELECT count(*) FROM (SELECT 1 FROM {schema}.runs WHERE retrying AND status = 'waiting' LIMIT $1) AS r),
    (SELECT count(*) FROM (SELECT 1 FROM {schema}.runs WHERE cancel_requested AND ended_at IS NULL LIMIT $1) AS c)
