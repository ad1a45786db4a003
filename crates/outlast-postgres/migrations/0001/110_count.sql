-- Changes counts, in the order of statuses, to avoid deadlocks.
CREATE FUNCTION {schema}.count{v}(statuses_ text[], changes_ bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.counts AS counts (status, slot, n)
    SELECT moved.status, (pg_backend_pid() % 64)::smallint, sum(moved.change)
    FROM unnest(statuses_, changes_) AS moved (status, change)
    GROUP BY moved.status HAVING sum(moved.change) <> 0 ORDER BY moved.status
    ON CONFLICT (status, slot) DO UPDATE SET n = counts.n + excluded.n;
END
$$
