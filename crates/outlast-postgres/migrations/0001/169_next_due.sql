-- When the next run of a line is due, of those that are ready later than `floor_`; null when there is none. One that
-- is ready already waits for its preferred session, or somebody has it locked and will let go of it. A moment that is
-- too early is only a look for nothing.
CREATE FUNCTION {schema}.next_due(session_ text, now_ bigint, floor_ bigint, preference_ bigint, line_ {schema}.line)
RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- So many of those that come next are looked at: the first may have to wait for its preferred session.
    looks_ CONSTANT integer := 20;
    looked_ integer := 0;
    due_ bigint;
    next_ record;
BEGIN
    IF line_.is_suspect THEN
        -- No suspect has a preferred session: whoever held it last has crashed.
        SELECT r.ready_at INTO due_ FROM {schema}.runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND coalesce(r.barred_build, '') = line_.barred AND r.priority = line_.priority
            AND r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0 AND r.ready_at > floor_
        ORDER BY r.ready_at, r.id LIMIT 1;
        RETURN CASE WHEN due_ > now_ THEN due_ WHEN due_ IS NOT NULL THEN now_ + 5000 END;
    END IF;
    FOR next_ IN
        SELECT r.ready_at, r.preferred FROM {schema}.runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND coalesce(r.barred_build, '') = line_.barred AND r.priority = line_.priority
            AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0 AND r.ready_at > floor_
        ORDER BY r.ready_at, r.id LIMIT looks_
    LOOP
        looked_ := looked_ + 1;
        EXIT WHEN next_.ready_at >= due_;
        IF looked_ < looks_ AND next_.preferred <> session_ THEN
            PERFORM 1 FROM {schema}.sessions s WHERE s.id = next_.preferred;
            IF FOUND THEN
                due_ := least(due_, least(next_.ready_at, 9223372036854775807 - preference_) + preference_);
                CONTINUE;
            END IF;
        END IF;
        due_ := least(due_, next_.ready_at);
        EXIT;
    END LOOP;
    RETURN CASE WHEN due_ > now_ THEN due_ WHEN due_ IS NOT NULL THEN now_ + 5000 END;
END
$$
