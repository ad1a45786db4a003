-- The queues ($5 at most) with the numbers of their runs that are ready at $1, that builds failed to continue, and that
-- sessions hold. The search for the next group of the index for claims skips all runs of the last one, and the count of a
-- group ends when its queue has $2 runs, so runs that are not ready yet cost nothing. At most $3 groups and $4 held runs
-- are read.
WITH RECURSIVE groups (queue, workflow, version, format, failed_builds, crash_class, priority, ready, oldest, counted,
    counted_failed) AS (
    SELECT ''::text COLLATE "C", ''::text COLLATE "C", 0::bigint, 0, ''::text COLLATE "C", 0::smallint, 0::smallint, 0::bigint,
        NULL::bigint, 0::bigint, 0::bigint
    UNION ALL
    SELECT g.queue, g.workflow, g.version, g.format, g.failed_builds, g.crash_class, g.priority, c.ready, c.oldest,
        l.counted + CASE WHEN g.failed_builds = '' THEN c.ready ELSE 0 END,
        l.counted_failed + CASE WHEN g.failed_builds = '' THEN 0 ELSE c.ready END
    FROM groups p
    CROSS JOIN LATERAL (
        SELECT r.queue, r.workflow, r.version, r.format, r.failed_builds, r.crash_class, r.priority
        FROM {schema}.runs r
        WHERE r.ready_at IS NOT NULL AND NOT r.ends_without_code
            AND (r.queue, r.workflow, r.version, r.format, r.failed_builds, r.crash_class, r.priority)
                > (p.queue, p.workflow, p.version, p.format, p.failed_builds, p.crash_class, p.priority)
        ORDER BY r.queue, r.workflow, r.version, r.format, r.failed_builds, r.crash_class, r.priority, r.ready_at, r.id
        LIMIT 1
    ) g
    CROSS JOIN LATERAL (
        SELECT CASE WHEN g.queue = p.queue THEN p.counted ELSE 0 END AS counted,
            CASE WHEN g.queue = p.queue THEN p.counted_failed ELSE 0 END AS counted_failed
    ) l
    CROSS JOIN LATERAL (
        SELECT count(*) AS ready, min(f.ready_at) AS oldest FROM (
            SELECT r.ready_at FROM {schema}.runs r
            WHERE r.ready_at IS NOT NULL AND NOT r.ends_without_code AND r.queue = g.queue AND r.workflow = g.workflow
                AND r.version = g.version AND r.format = g.format AND r.failed_builds = g.failed_builds
                AND r.crash_class = g.crash_class AND r.priority = g.priority AND r.ready_at <= $1
            ORDER BY r.queue, r.workflow, r.version, r.format, r.failed_builds, r.crash_class, r.priority, r.ready_at, r.id
            -- The first run is read even if no more are counted: it may be the oldest.
            LIMIT greatest($2::bigint - CASE WHEN g.failed_builds = '' THEN l.counted ELSE l.counted_failed END, 1)
        ) f
    ) c
)
SELECT q.queue, sum(q.ready)::bigint, min(q.oldest), sum(q.stuck)::bigint, sum(q.running)::bigint FROM (
    SELECT g.queue, CASE WHEN g.failed_builds = '' THEN g.ready ELSE 0 END AS ready,
        CASE WHEN g.failed_builds = '' THEN g.oldest END AS oldest,
        CASE WHEN g.failed_builds = '' THEN 0 ELSE g.ready END AS stuck, 0 AS running
    -- One more, because the first row is where the search begins.
    FROM (SELECT * FROM groups LIMIT $3::bigint + 1) g WHERE g.queue <> ''
    UNION ALL
    SELECT e.queue, 1, e.ready_at, 0, 0 FROM (
        SELECT r.queue, r.ready_at FROM {schema}.runs r
        WHERE r.ready_at IS NOT NULL AND r.ends_without_code AND r.ready_at <= $1
        ORDER BY r.ready_at, r.id LIMIT $2::bigint
    ) e
    UNION ALL
    SELECT h.queue, 0, NULL, 0, 1 FROM (
        SELECT r.queue FROM {schema}.runs r WHERE r.owner IS NOT NULL ORDER BY r.owner, r.id LIMIT $4::bigint
    ) h
) q GROUP BY q.queue ORDER BY q.queue LIMIT $5::bigint
