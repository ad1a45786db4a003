-- The last turn of those runs of a list that have ended; NULL for those that have not.
SELECT r.id, CASE WHEN r.ended_at IS NOT NULL
    THEN (SELECT t.events FROM {schema}.turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) END
FROM unnest($1::text[]) AS asked (run) JOIN {schema}.runs r ON r.id = asked.run
