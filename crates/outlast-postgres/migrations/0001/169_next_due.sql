-- When the next run of the lines is due, apart from those that become overdue. Of what is ready now only that counts
-- which waits for its preferred session, and only when there was room for all (`has_room_`). A moment that is too
-- early is only a look for nothing.
CREATE FUNCTION {schema}.next_due(
    session_ text, now_ bigint, has_room_ boolean, suspect_ boolean, preference_ bigint, queues_ text[],
    workflows_ text[], versions_ bigint[], formats_ integer[], barred_ text[], priorities_ smallint[],
    suspects_ boolean[]
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- So many of those that come next are looked at in each line: the first may have to wait for its preferred
    -- session. Fewer where there are many lines.
    looks_ CONSTANT integer := greatest(2, least(20, 100 / greatest(1, cardinality(queues_))));
    due_ bigint;
BEGIN
    WITH later AS (
        SELECT f.*, row_number() OVER (PARTITION BY l.nth) AS nth
        FROM unnest(queues_, workflows_, versions_, formats_, barred_, priorities_, suspects_) WITH ORDINALITY
            AS l (queue, workflow, version, format, barred, priority, is_suspect, nth)
        CROSS JOIN LATERAL (
            SELECT r.ready_at, r.preferred FROM {schema}.runs r
            WHERE r.queue = l.queue AND r.workflow = l.workflow AND r.version = l.version AND r.format = l.format
                AND coalesce(r.barred_build, '') = l.barred AND r.priority = l.priority
                AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0 AND r.ready_at > now_
            ORDER BY r.ready_at, r.id LIMIT looks_) f
        WHERE NOT l.is_suspect
        UNION ALL
        SELECT f.* FROM unnest(queues_, workflows_, versions_, formats_, barred_, priorities_, suspects_)
            AS l (queue, workflow, version, format, barred, priority, is_suspect)
        CROSS JOIN LATERAL (
            SELECT r.ready_at, r.preferred, 0 FROM {schema}.runs r
            WHERE r.queue = l.queue AND r.workflow = l.workflow AND r.version = l.version AND r.format = l.format
                AND coalesce(r.barred_build, '') = l.barred AND r.priority = l.priority
                AND r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0 AND r.ready_at > now_
            ORDER BY r.ready_at, r.id LIMIT looks_) f
        WHERE l.is_suspect
        UNION ALL
        SELECT f.* FROM unnest(queues_, workflows_, versions_, formats_, barred_, priorities_, suspects_)
            AS l (queue, workflow, version, format, barred, priority, is_suspect)
        CROSS JOIN LATERAL (
            SELECT r.ready_at, r.preferred, 0 FROM {schema}.runs r
            WHERE r.queue = l.queue AND r.workflow = l.workflow AND r.version = l.version AND r.format = l.format
                AND coalesce(r.barred_build, '') = l.barred AND r.priority = l.priority
                AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0 AND r.ready_at <= now_
            ORDER BY r.ready_at, r.id LIMIT looks_) f
        WHERE has_room_ AND NOT l.is_suspect
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
