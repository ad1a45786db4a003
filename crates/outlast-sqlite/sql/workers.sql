-- The joined workers, and the number of runs that each of them holds.
SELECT id, host, pid, build, joined_at, expires_at, (SELECT count(*) FROM runs WHERE owner = sessions.id), code,
    queues, beat_at, report, version, format
FROM sessions ORDER BY id
