-- When the next run that the session could have is due, apart from those that become overdue. Of what is
-- ready now only that counts which waits for its preferred session, and only when there was room for all
-- (`has_room_`). A moment that is too early is only a look for nothing.
CREATE FUNCTION {schema}.next_due(
    session_ text, now_ bigint, has_room_ boolean, queues_ text[], workflows_ text[], versions_ bigint[], build_ text,
    format_ integer, suspect_ boolean, preference_ bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- So many of those that come next are looked at: the first may have to wait for its preferred session.
    looks_ CONSTANT integer := 20;
    due_ bigint;
BEGIN
    WITH later AS (
        SELECT f.*, row_number() OVER (PARTITION BY q.queue, c.workflow, c.version) AS nth
        FROM unnest(queues_) AS q (queue) CROSS JOIN unnest(workflows_, versions_) AS c (workflow, version)
        CROSS JOIN LATERAL (
            SELECT r.ready_at, r.preferred FROM {schema}.runs r
            WHERE r.queue = q.queue AND r.workflow = c.workflow AND r.version = c.version
                AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0
                AND r.ready_at - r.priority::bigint * 10000000 > now_
                AND r.format <= format_ AND r.barred_build IS DISTINCT FROM build_
            ORDER BY r.ready_at - r.priority::bigint * 10000000, r.id LIMIT looks_) f
        UNION ALL
        SELECT f.* FROM unnest(queues_) AS q (queue) CROSS JOIN unnest(workflows_, versions_) AS c (workflow, version)
        CROSS JOIN LATERAL (
            SELECT r.ready_at, r.preferred, 0 FROM {schema}.runs r
            WHERE suspect_ AND r.queue = q.queue AND r.workflow = c.workflow AND r.version = c.version
                AND r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0
                AND r.format <= format_ AND r.barred_build IS DISTINCT FROM build_ AND r.ready_at > now_
            ORDER BY r.ready_at - r.priority::bigint * 10000000, r.id LIMIT looks_) f
        UNION ALL
        SELECT f.* FROM unnest(queues_) AS q (queue) CROSS JOIN unnest(workflows_, versions_) AS c (workflow, version)
        CROSS JOIN LATERAL (
            SELECT r.ready_at, r.preferred, 0 FROM {schema}.runs r
            WHERE has_room_ AND r.queue = q.queue AND r.workflow = c.workflow AND r.version = c.version
                AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0
                AND r.ready_at - r.priority::bigint * 10000000 <= now_
                AND r.format <= format_ AND r.barred_build IS DISTINCT FROM build_
            ORDER BY r.ready_at - r.priority::bigint * 10000000, r.id LIMIT looks_) f
        UNION ALL
        SELECT f.* FROM (
            SELECT r.ready_at, r.preferred, 0 FROM {schema}.runs r
            WHERE has_room_ AND r.codeless > 0 AND r.ready_at IS NOT NULL AND (suspect_ OR r.crashes < 2)
            ORDER BY r.ready_at, r.id LIMIT looks_) f
    )
    SELECT min(CASE
        WHEN l.nth < looks_ AND l.preferred <> session_ AND EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = l.preferred)
            THEN least(l.ready_at, 9223372036854775807 - preference_) + preference_
        -- Somebody has it locked, and will let go of it.
        WHEN l.ready_at <= now_ THEN now_ + 5000
        ELSE l.ready_at END) INTO due_
    FROM later l;
    RETURN CASE WHEN due_ > now_ THEN due_ WHEN due_ IS NOT NULL THEN now_ + 5000 END;
END
$$
