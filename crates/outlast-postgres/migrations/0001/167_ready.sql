-- Runs that the session may have now, locked: at most so many, of them at most one suspect. A woken run is
-- offered for a while only to the session that last held it, while that one lives.
CREATE FUNCTION {schema}.ready(
    session_ text, now_ bigint, limit_ integer, queues_ text[], workflows_ text[], versions_ bigint[], build_ text,
    format_ integer, suspect_ boolean, preference_ bigint
) RETURNS TABLE (id text, rank bigint, is_suspect boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH found AS MATERIALIZED (
        SELECT f.id, f.rank, false AS is_suspect
        FROM unnest(queues_) AS q (queue) CROSS JOIN unnest(workflows_, versions_) AS c (workflow, version)
        CROSS JOIN LATERAL (
            SELECT r.id, r.ready_at - r.priority::bigint * 10000000 AS rank FROM {schema}.runs r
            WHERE r.queue = q.queue AND r.workflow = c.workflow AND r.version = c.version
                AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0
                AND r.ready_at - r.priority::bigint * 10000000 <= now_ AND r.ready_at <= now_
                AND r.format <= format_ AND r.barred_build IS DISTINCT FROM build_
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = r.preferred))
            ORDER BY r.ready_at - r.priority::bigint * 10000000, r.id
            LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED) f
        UNION ALL
        SELECT f.id, f.rank, f.is_suspect FROM (
            SELECT r.id, r.ready_at AS rank, r.crashes >= 2 AS is_suspect
            FROM {schema}.runs r
            WHERE r.codeless > 0 AND r.ready_at IS NOT NULL AND (suspect_ OR r.crashes < 2)
                AND r.ready_at <= now_
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = r.preferred))
            ORDER BY r.ready_at, r.id
            LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED) f
        UNION ALL
        SELECT f.id, f.rank, true
        FROM unnest(queues_) AS q (queue) CROSS JOIN unnest(workflows_, versions_) AS c (workflow, version)
        CROSS JOIN LATERAL (
            SELECT r.id, r.ready_at - r.priority::bigint * 10000000 AS rank FROM {schema}.runs r
            WHERE suspect_ AND r.queue = q.queue AND r.workflow = c.workflow AND r.version = c.version
                AND r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0
                AND r.ready_at - r.priority::bigint * 10000000 <= now_ AND r.ready_at <= now_
                AND r.format <= format_ AND r.barred_build IS DISTINCT FROM build_
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = r.preferred))
            ORDER BY r.ready_at - r.priority::bigint * 10000000, r.id
            LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED) f
    ), counted AS (
        SELECT u.id, u.rank, u.is_suspect,
            row_number() OVER (PARTITION BY u.is_suspect ORDER BY u.rank, u.id) AS nth
        FROM (SELECT DISTINCT f.id, f.rank, f.is_suspect FROM found f) u
    )
    SELECT c.id::text, c.rank, c.is_suspect FROM counted c WHERE NOT c.is_suspect OR c.nth = 1
    ORDER BY c.rank, c.id LIMIT limit_;
END
$$
