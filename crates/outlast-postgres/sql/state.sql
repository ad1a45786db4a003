-- The published state of a run, and whether the run has ended; without a version if it has published none.
SELECT r.ended_at IS NOT NULL, s.version, s.at, s.dropped, s.body IS NOT NULL OR s.raw IS NOT NULL, s.codec, s.body, s.raw
FROM {schema}.runs r LEFT JOIN {schema}.states s ON s.run = r.id WHERE r.id = $1
