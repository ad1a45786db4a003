-- The joined workers, and the number of runs that each holds.
SELECT s.id, s.host, s.pid, s.build, s.joined_at, s.expires_at,
    (SELECT count(*) FROM {schema}.runs r WHERE r.owner = s.id), s.code, s.queues, s.beat_at, s.report, s.version,
    s.format::bigint
FROM {schema}.sessions s WHERE s.ended_at IS NULL ORDER BY s.id
