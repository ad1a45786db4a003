-- The records of a space before an id, the highest id first.
SELECT id, body, at FROM {schema}.records WHERE space = $1 AND id < $2 ORDER BY space DESC, id DESC LIMIT $3
