-- The first line of ready runs behind another one, in the order of the index: in the same version, workflow or queue, or in
-- the next queue. The first of these parts that has a row ends the statement. A comparison of rows, (queue, …) > (?, …),
-- would read all runs of the other line: SQLite begins such a search at the first equal row.
SELECT * FROM (
    SELECT queue, workflow, version, line FROM runs
    WHERE ready_at IS NOT NULL AND queue = ?1 AND workflow = ?2 AND version = ?3 AND line > ?4 ORDER BY line LIMIT 1)
UNION ALL
SELECT * FROM (
    SELECT queue, workflow, version, line FROM runs
    WHERE ready_at IS NOT NULL AND queue = ?1 AND workflow = ?2 AND version > ?3 ORDER BY version, line LIMIT 1)
UNION ALL
SELECT * FROM (
    SELECT queue, workflow, version, line FROM runs
    WHERE ready_at IS NOT NULL AND queue = ?1 AND workflow > ?2 ORDER BY workflow, version, line LIMIT 1)
UNION ALL
SELECT * FROM (
    SELECT queue, workflow, version, line FROM runs
    WHERE ready_at IS NOT NULL AND queue > ?1 ORDER BY queue, workflow, version, line LIMIT 1)
LIMIT 1
