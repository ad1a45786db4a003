-- When the next run of a group is due, of those that are ready later than `floor_`; null if there is none. A run that
-- is already ready waits for its preferred session, or another transaction has locked it for a moment. A time that is
-- too early only causes a claim that finds nothing.
CREATE FUNCTION {schema}.next_due{v}(session_ text, now_ bigint, floor_ bigint, preference_ bigint, line_ {schema}.line{v})
RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- The number of runs that are examined: the first may have to wait for its preferred session.
    looks_ CONSTANT integer := 20;
    looked_ integer := 0;
    due_ bigint;
    next_ record;
BEGIN
    FOR next_ IN
        SELECT r.ready_at, r.preferred FROM {schema}.runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND r.failed_builds = line_.failed_builds AND r.crash_class = line_.crash_class
            AND r.priority = line_.priority AND r.ready_at IS NOT NULL AND NOT r.ends_without_code AND r.ready_at > floor_
        ORDER BY r.ready_at, r.id LIMIT looks_
    LOOP
        looked_ := looked_ + 1;
        EXIT WHEN next_.ready_at >= due_;
        IF looked_ < looks_ AND next_.preferred <> session_ THEN
            PERFORM 1 FROM {schema}.sessions s WHERE s.id = next_.preferred AND s.ended_at IS NULL;
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
