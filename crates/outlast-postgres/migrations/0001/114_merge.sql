-- Merges a part of the rows of `unmerged` into counts and skew. Rows that another transaction is merging are skipped.
CREATE FUNCTION {schema}.merge{v}() RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    merged_ record;
BEGIN
    PERFORM 1 FROM {schema}.unmerged u ORDER BY u.id LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH part AS (
        DELETE FROM {schema}.unmerged u WHERE u.id = ANY (ARRAY(
            SELECT o.id FROM {schema}.unmerged o ORDER BY o.id LIMIT 10000 FOR UPDATE SKIP LOCKED))
        RETURNING u.status, u.n, u.lowest, u.highest
    )
    SELECT array_agg(p.status::text) AS statuses, array_agg(p.n) AS changes, min(p.lowest) AS lowest,
        max(p.highest) AS highest INTO merged_ FROM part p;
    IF merged_.statuses IS NOT NULL THEN
        PERFORM {schema}.widen{v}(merged_.lowest, merged_.highest);
        PERFORM {schema}.count{v}(merged_.statuses, merged_.changes);
    END IF;
END
$$
