-- Renews a session, stores the heartbeat details of its attempts, and returns how many runs it holds and which rules
-- new runs get. Returns no row if the session has ended. Details of runs that it does not hold are ignored; details
-- without a body are deleted.
CREATE FUNCTION {schema}.beat{v}(at_ bigint, id_ text, report_ text, details_ json, bodies_ text[], raws_ bytea[])
RETURNS TABLE (held bigint, moment bigint, rules integer) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock{v}());
    rules_ integer;
BEGIN
    UPDATE {schema}.sessions s SET beat_at = now_, boot = {schema}.boot{v}(), lock_free_since = NULL,
        expires_at = least(now_, 9223372036854775807 - s.time) + s.time, report = report_
    WHERE s.id = id_ AND s.ended_at IS NULL
    RETURNING s.rules INTO rules_;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF json_array_length(details_) > 0 THEN
        PERFORM {schema}.put_details{v}(id_, details_, bodies_, raws_);
    END IF;
    PERFORM {schema}.merge{v}();
    rules_ := coalesce((SELECT g.rules FROM {schema}.settings g), rules_);
    RETURN QUERY SELECT count(*), now_, rules_ FROM {schema}.runs r WHERE r.owner = id_;
END
$$
