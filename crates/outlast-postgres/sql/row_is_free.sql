-- Returns a row if no other transaction has locked the row of run $1. The lock that this takes need not be durable.
SELECT set_config('synchronous_commit', 'off', true) FROM {schema}.runs r WHERE r.id = $1 FOR NO KEY UPDATE SKIP LOCKED
