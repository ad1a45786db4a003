-- Whether a turn of the run could be written now: a row when nobody has locked it. Nothing of it must be durable.
SELECT set_config('synchronous_commit', 'off', true) FROM {schema}.runs r WHERE r.id = $1 FOR NO KEY UPDATE SKIP LOCKED
