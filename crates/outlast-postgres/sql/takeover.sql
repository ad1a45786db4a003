-- Ends the sessions of workers that are gone. No row means that the session itself is.
SELECT runs, ended, moment, suspects FROM {schema}.takeover(
    $1, $2, $3, $4, $5, $6, $7)
