-- Ends the sessions of dead workers. Returns no row if the caller's session has ended.
SELECT session, moment, ended, unlocked FROM {schema}.takeover{v}($1, $2, $3, $4)
