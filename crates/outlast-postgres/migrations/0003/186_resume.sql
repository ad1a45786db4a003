-- Makes a run that no session holds ready for every build: its list of failed builds is emptied, and a stuck run is
-- ready now, unless it is paused (bit 1 of its marks). Returns the status that it had, and whether it was resumed.
CREATE FUNCTION {schema}.resume{v}(at_ bigint, id_ text, OUT status text, OUT is_resumed boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT r.status, r.owner IS NULL AND r.ended_at IS NULL INTO status, is_resumed
    FROM {schema}.runs r WHERE r.id = id_ FOR NO KEY UPDATE;
    IF is_resumed THEN
        UPDATE {schema}.runs r SET failed_builds = '', failed_at = 0,
            ready_at = CASE WHEN r.status = 'stuck' AND r.marks & 1 = 0 THEN coalesce(at_, {schema}.clock{v}()) ELSE r.ready_at END
        WHERE r.id = id_;
    END IF;
END
$$
