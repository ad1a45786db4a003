-- Renews a session. Returns no row if the session has ended.
SELECT held, moment, rules FROM {schema}.beat{v}($1, $2, $3, $4::text::json, $5, $6)
