-- The last turn of each run in a JSON list, or NULL if the run has not ended.
SELECT runs.id,
    CASE WHEN runs.ended_at IS NOT NULL
         THEN (SELECT events FROM turns WHERE run = runs.id ORDER BY seq DESC LIMIT 1) END
FROM json_each(?1) AS asked JOIN runs ON runs.id = asked.value
