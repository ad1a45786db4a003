-- Ends every other session whose worker is gone or whose time is over, and answers how many runs that made
-- ready; no row means that the session itself is gone.
--
-- A free lock makes a session a suspect, and one that stays so for `patience_` is taken over. After a restart of
-- the server all locks are free and nobody could beat: then a session has its full time again.
--
-- First all those sessions end, which waits for their commits, then the rows of all their runs are locked in order
-- of their ids: nobody waits in a circle.
CREATE FUNCTION {schema}.takeover(
    at_ bigint, id_ text, patience_ bigint, poison_ integer, message_ text, mark_build_ text, mark_crashes_ text
) RETURNS TABLE (runs bigint, ended bigint, moment bigint, suspects bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock());
    boot_ bigint := {schema}.boot();
    other_ {schema}.sessions;
    gone_ {schema}.sessions[] := '{}';
    held_ text[];
    is_free_ boolean;
    is_late_ boolean;
BEGIN
    PERFORM 1 FROM {schema}.sessions s WHERE s.id = id_;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    runs := 0; ended := 0; moment := now_; suspects := 0;
    FOR other_ IN SELECT s.* FROM {schema}.sessions s WHERE s.id <> id_ ORDER BY s.id LOOP
        -- Shared: others who look at the same time must not take this for a sign of life.
        is_free_ := other_.has_lock AND pg_try_advisory_xact_lock_shared({schema}.lock_key(other_.id));
        is_late_ := other_.expires_at <= now_;
        IF at_ IS NULL AND other_.boot <> boot_ THEN
            is_free_ := false;
            is_late_ := is_late_ AND boot_ <= now_ - other_.time;
        END IF;
        IF is_free_ AND NOT is_late_ AND patience_ > 0 THEN
            IF other_.suspect_since IS NULL THEN
                UPDATE {schema}.sessions s SET suspect_since = now_ WHERE s.id = other_.id AND s.suspect_since IS NULL;
            END IF;
            IF other_.suspect_since IS NULL OR other_.suspect_since > now_ - patience_ THEN
                suspects := suspects + 1;
                CONTINUE;
            END IF;
        ELSIF NOT is_free_ AND NOT is_late_ THEN
            IF other_.suspect_since IS NOT NULL THEN
                UPDATE {schema}.sessions s SET suspect_since = NULL WHERE s.id = other_.id;
            END IF;
            CONTINUE;
        END IF;
        -- Unless it has beaten, or found its lock again, in the meantime.
        DELETE FROM {schema}.sessions s WHERE s.id = other_.id AND s.expires_at = other_.expires_at;
        CONTINUE WHEN NOT FOUND;
        gone_ := array_append(gone_, other_);
    END LOOP;
    ended := cardinality(gone_);
    IF ended > 1 THEN
        SELECT array_agg(r.id::text) INTO held_ FROM unnest(gone_) AS g JOIN {schema}.runs r ON r.owner = g.id;
        PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (held_) ORDER BY r.id FOR NO KEY UPDATE;
    END IF;
    FOREACH other_ IN ARRAY gone_ LOOP
        runs := runs + {schema}.free(other_.id, now_, true, other_.build, poison_,
            replace(message_, mark_build_, other_.build), mark_crashes_);
    END LOOP;
    RETURN NEXT;
END
$$
