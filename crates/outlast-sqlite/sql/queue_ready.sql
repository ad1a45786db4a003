-- How many runs of a line with a priority are ready, counted up to a limit, and since when the first is.
SELECT count(*), min(ready_at) FROM (
    SELECT ready_at FROM runs
    WHERE ready_at IS NOT NULL AND queue = ?1 AND workflow = ?2 AND version = ?3 AND line = ?4 AND priority = ?5
        AND ready_at <= ?6
    ORDER BY ready_at LIMIT ?7)
