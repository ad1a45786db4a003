-- Tells every process that something may have become ready, when the transaction commits. For transactions of
-- others: the workers' own changes are told of beside them.
CREATE FUNCTION {schema}.hint{v}() RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify({channel}, '0 w')
$$
