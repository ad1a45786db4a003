-- Stores records.
SELECT {schema}.put_records{v}($1, $2, $3, $4, $5, $6)
