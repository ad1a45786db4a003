-- Commits one simple turn. Returns NULL, and changes nothing, if the turn is not simple or not accepted.
SELECT {schema}.commit_one{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
