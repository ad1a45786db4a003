-- The highest priority below another one in a line.
SELECT priority FROM runs
WHERE ready_at IS NOT NULL AND queue = ?1 AND workflow = ?2 AND version = ?3 AND line = ?4 AND priority < ?5
ORDER BY priority DESC LIMIT 1
