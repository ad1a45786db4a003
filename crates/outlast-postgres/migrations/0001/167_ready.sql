-- Runs of the lines that the session may have now, locked: at most so many, of them at most one suspect. A woken run
-- is offered for a while only to the session that last held it, while that one lives. A level of priority is worth
-- ten seconds of waiting.
CREATE FUNCTION {schema}.ready(
    session_ text, now_ bigint, limit_ integer, suspect_ boolean, preference_ bigint, queues_ text[],
    workflows_ text[], versions_ bigint[], formats_ integer[], barred_ text[], priorities_ smallint[],
    suspects_ boolean[], heads_ bigint[]
) RETURNS TABLE (id text, rank bigint, is_suspect boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH found AS MATERIALIZED (
        SELECT f.id, f.ready_at - l.priority::bigint * 10000000 AS rank, false AS is_suspect
        FROM unnest(queues_, workflows_, versions_, formats_, barred_, priorities_, suspects_, heads_)
            AS l (queue, workflow, version, format, barred, priority, is_suspect, head)
        CROSS JOIN LATERAL (
            SELECT r.id, r.ready_at FROM {schema}.runs r
            WHERE r.queue = l.queue AND r.workflow = l.workflow AND r.version = l.version AND r.format = l.format
                AND coalesce(r.barred_build, '') = l.barred AND r.priority = l.priority
                AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0 AND r.ready_at <= now_
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = r.preferred))
            ORDER BY r.ready_at, r.id
            LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED) f
        WHERE NOT l.is_suspect AND l.head <= now_
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
        SELECT f.id, f.ready_at - l.priority::bigint * 10000000, true
        FROM unnest(queues_, workflows_, versions_, formats_, barred_, priorities_, suspects_, heads_)
            AS l (queue, workflow, version, format, barred, priority, is_suspect, head)
        CROSS JOIN LATERAL (
            SELECT r.id, r.ready_at FROM {schema}.runs r
            WHERE r.queue = l.queue AND r.workflow = l.workflow AND r.version = l.version AND r.format = l.format
                AND coalesce(r.barred_build, '') = l.barred AND r.priority = l.priority
                AND r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0 AND r.ready_at <= now_
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = r.preferred))
            ORDER BY r.ready_at, r.id
            LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED) f
        WHERE l.is_suspect AND l.head <= now_
    ), counted AS (
        SELECT u.id, u.rank, u.is_suspect,
            row_number() OVER (PARTITION BY u.is_suspect ORDER BY u.rank, u.id) AS nth
        FROM (SELECT DISTINCT f.id, f.rank, f.is_suspect FROM found f) u
    )
    SELECT c.id::text, c.rank, c.is_suspect FROM counted c WHERE NOT c.is_suspect OR c.nth = 1
    ORDER BY c.rank, c.id LIMIT limit_;
END
$$
