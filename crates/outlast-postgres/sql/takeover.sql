-- Ends the sessions of workers that are gone. No row means that the session itself is.
SELECT session, moment, ended, unlocked FROM {schema}.takeover{v}($1, $2, $3, $4)
