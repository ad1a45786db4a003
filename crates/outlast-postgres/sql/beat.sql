-- Renews a session. No row means that it is gone.
SELECT held, moment, rules FROM {schema}.beat{v}($1, $2, $3, $4::text::json, $5, $6)
