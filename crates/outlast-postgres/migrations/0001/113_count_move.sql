-- Counts the change of one run from one status to another; `from_` is null for a new run. In the order of statuses, as
-- `count`.
CREATE FUNCTION {schema}.count_move{v}(from_ text, to_ text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    slot_ CONSTANT smallint := (pg_backend_pid() % 64)::smallint;
BEGIN
    IF from_ IS NULL THEN
        INSERT INTO {schema}.counts AS counts (status, slot, n) VALUES (to_, slot_, 1)
        ON CONFLICT (status, slot) DO UPDATE SET n = counts.n + 1;
    ELSIF from_ COLLATE "C" < to_ THEN
        INSERT INTO {schema}.counts AS counts (status, slot, n) VALUES (from_, slot_, -1), (to_, slot_, 1)
        ON CONFLICT (status, slot) DO UPDATE SET n = counts.n + excluded.n;
    ELSE
        INSERT INTO {schema}.counts AS counts (status, slot, n) VALUES (to_, slot_, 1), (from_, slot_, -1)
        ON CONFLICT (status, slot) DO UPDATE SET n = counts.n + excluded.n;
    END IF;
END
$$
