-- How the runs of a list ended: the last turn of those that did, nothing for those that did not.
SELECT r.id, CASE WHEN r.ended_at IS NOT NULL
    THEN (SELECT t.events FROM {schema}.turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) END
FROM unnest($1::text[]) AS asked (run) JOIN {schema}.runs r ON r.id = asked.run
