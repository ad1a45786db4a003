-- The records of a space behind an id, the lowest id first.
SELECT id, body, at FROM {schema}.records WHERE space = $1 AND id > $2 ORDER BY space, id LIMIT $3
