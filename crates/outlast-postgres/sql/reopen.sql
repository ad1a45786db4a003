-- Reopens a run that has ended. Returns what it was, and the position of the message if it was reopened.
SELECT status, marks, events, moment, place
FROM {schema}.reopen{v}($1, $2, $3, $4, $5, $6, $7::text::json, $8, $9, $10)
