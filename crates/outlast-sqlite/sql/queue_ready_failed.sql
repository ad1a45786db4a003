-- How many runs of a line with a priority are ready and need code, counted up to a limit. For the few lines of runs that
-- builds failed to continue: `can_end` is not in the index.
SELECT count(*), min(ready_at) FROM (
    SELECT ready_at FROM runs
    WHERE ready_at IS NOT NULL AND queue = ?1 AND workflow = ?2 AND version = ?3 AND line = ?4 AND priority = ?5
        AND ready_at <= ?6 AND NOT can_end
    ORDER BY ready_at LIMIT ?7)
