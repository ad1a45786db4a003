-- Deletes runs that ended before `before_` and are not in quarantine (bit 8 of the marks), of the `limit_` runs after
-- `after_` in the order of ids. What is too much for one statement becomes leftovers.
CREATE FUNCTION {schema}.prune{v}(before_ bigint, after_ text, limit_ integer, rows_ integer)
RETURNS TABLE (runs bigint, next text, has_leftovers boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    part_ record;
    gone_ record;
BEGIN
    SELECT array_agg(p.id::text ORDER BY p.id) FILTER (WHERE p.ended_at < before_ AND p.marks & 8 = 0) AS old, max(p.id) AS last, count(*) AS n
    INTO part_
    FROM (SELECT r.id, r.ended_at, r.marks FROM {schema}.runs r WHERE r.id > after_ ORDER BY r.id LIMIT limit_) p;
    runs := 0;
    next := CASE WHEN part_.n = limit_ THEN part_.last END;
    IF part_.old IS NOT NULL THEN
        DELETE FROM {schema}.tags t WHERE t.run = ANY (part_.old);
        DELETE FROM {schema}.heartbeats h WHERE h.run = ANY (part_.old);
        WITH gone AS (DELETE FROM {schema}.runs r WHERE r.id = ANY (part_.old) AND r.ended_at < before_ AND r.marks & 8 = 0 RETURNING r.id, r.status)
        SELECT array_agg(g.id::text) AS ids, array_agg(g.status::text) AS statuses, array_agg(-1::bigint) AS changes,
            count(*) AS n INTO gone_ FROM gone g;
        runs := gone_.n;
        IF gone_.n > 0 THEN
            IF NOT {schema}.sweep{v}(gone_.ids, rows_, false) THEN
                INSERT INTO {schema}.leftovers (run) SELECT unnest(gone_.ids) ON CONFLICT DO NOTHING;
            END IF;
            PERFORM {schema}.count{v}(gone_.statuses, gone_.changes);
        END IF;
    END IF;
    has_leftovers := EXISTS (SELECT 1 FROM {schema}.leftovers);
    RETURN NEXT;
END
$$
