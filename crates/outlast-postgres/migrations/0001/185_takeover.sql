-- Ends every other session whose worker is dead or that has expired. Returns the sessions whose runs must be released:
-- these, and sessions that others have ended and not released yet. The last row has the time, how many sessions were
-- ended, and how many have a free lock. Returns no row if the session itself has ended.
--
-- A session whose lock stays free for `patience_` is taken over. After a restart of the server all locks are free and
-- no session could be renewed: then each session has its full time again.
CREATE FUNCTION {schema}.takeover{v}(at_ bigint, id_ text, patience_ bigint, class_max_ integer)
RETURNS TABLE (session text, moment bigint, ended bigint, unlocked bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock{v}());
    boot_ bigint := {schema}.boot{v}();
    other_ record;
    is_free_ boolean;
    is_late_ boolean;
    ended_ bigint := 0;
    unlocked_ bigint := 0;
BEGIN
    PERFORM 1 FROM {schema}.sessions s WHERE s.id = id_ AND s.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR other_ IN SELECT s.id, s.has_lock, s.expires_at, s.boot, s.time, s.lock_free_since, s.ended_at
        FROM {schema}.sessions s WHERE s.id <> id_ ORDER BY s.id
    LOOP
        IF other_.ended_at IS NOT NULL THEN
            session := other_.id;
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- A shared lock, so that another takeover at the same time does not mistake it for the session's lock.
        is_free_ := other_.has_lock AND pg_try_advisory_xact_lock_shared({schema}.lock_key{v}(other_.id));
        is_late_ := other_.expires_at <= now_;
        IF at_ IS NULL AND other_.boot <> boot_ THEN
            is_free_ := false;
            is_late_ := is_late_ AND boot_ <= now_ - other_.time;
        END IF;
        IF is_free_ AND NOT is_late_ AND patience_ > 0 THEN
            IF other_.lock_free_since IS NULL THEN
                UPDATE {schema}.sessions s SET lock_free_since = now_ WHERE s.id = other_.id AND s.lock_free_since IS NULL;
            END IF;
            IF other_.lock_free_since IS NULL OR other_.lock_free_since > now_ - patience_ THEN
                unlocked_ := unlocked_ + 1;
                CONTINUE;
            END IF;
        ELSIF NOT is_free_ AND NOT is_late_ THEN
            IF other_.lock_free_since IS NOT NULL THEN
                UPDATE {schema}.sessions s SET lock_free_since = NULL WHERE s.id = other_.id;
            END IF;
            CONTINUE;
        END IF;
        -- Skip it if it has been renewed meanwhile.
        CONTINUE WHEN NOT {schema}.end_session{v}(now_, other_.id, true, other_.expires_at, class_max_);
        ended_ := ended_ + 1;
        session := other_.id;
        RETURN NEXT;
    END LOOP;
    IF ended_ > 0 THEN
        PERFORM {schema}.refresh_rules{v}();
    END IF;
    session := NULL; moment := now_; ended := ended_; unlocked := unlocked_;
    RETURN NEXT;
END
$$
