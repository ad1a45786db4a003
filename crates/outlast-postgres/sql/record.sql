-- A record.
SELECT id, body, at FROM {schema}.records WHERE space = $1 AND id = $2
