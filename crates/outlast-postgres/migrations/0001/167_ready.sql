-- Locks and returns at most `limit_` runs of one group that the session may claim now, in their order: ids and ranks.
-- One level of priority is worth `priority_age_` of waiting. For a while, a woken run is offered only to the session
-- that held it last, if that session has not ended.
CREATE FUNCTION {schema}.ready{v}(
    session_ text, now_ bigint, limit_ integer, preference_ bigint, priority_age_ bigint, line_ {schema}.line{v},
    OUT ids text[], OUT ranks bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(f.id::text), array_agg(f.ready_at - line_.priority::bigint * priority_age_) INTO ids, ranks
    FROM (
        SELECT r.id, r.ready_at FROM {schema}.runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND r.failed_builds = line_.failed_builds AND r.crash_class = line_.crash_class
            AND r.priority = line_.priority AND r.ready_at IS NOT NULL AND NOT r.ends_without_code AND r.ready_at <= now_
            AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                OR NOT EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = r.preferred AND s.ended_at IS NULL))
        ORDER BY r.ready_at, r.id LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED) f;
END
$$
