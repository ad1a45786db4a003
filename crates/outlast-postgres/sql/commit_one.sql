-- Commits one turn, if it is a plain one; null when it is not.
SELECT {schema}.commit_one{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
