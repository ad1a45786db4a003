-- Notifies every process that a run may have become ready, when the transaction commits. For transactions of users:
-- workers send their own notifications.
CREATE FUNCTION {schema}.hint{v}() RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify({channel}, '0 w')
$$
