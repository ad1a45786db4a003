-- The joined workers, and how many runs each holds.
SELECT id, host, pid, build, joined_at, expires_at, (SELECT count(*) FROM runs WHERE owner = sessions.id), code,
    queues, beat_at, report, version
FROM sessions ORDER BY id
