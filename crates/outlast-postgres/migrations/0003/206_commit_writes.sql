-- Commits turns whose workflows write to streams or publish states: as `commit`, and in the same transaction what they
-- write. Turns that write nothing use `commit`, so that they do not pay for this.
CREATE FUNCTION {schema}.commit_writes{v}(
    session_ text, at_ bigint, how_ json, locked_ text[], turns_ json, events_ text[], children_ json,
    child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[], writes_ json, packs_ text[], states_ json,
    state_bodies_ text[], state_raws_ bytea[], limits_ bigint[]
) RETURNS TABLE (nth integer, code text, detail text, moment bigint, rings boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    answer_ record;
    now_ bigint;
    refused_ integer[] := '{}';
BEGIN
    FOR answer_ IN SELECT c.nth, c.code, c.detail, c.moment, c.rings FROM {schema}.commit{v}(session_, at_, how_, locked_,
        turns_, events_, children_, child_events_, messages_, bodies_, raws_) c
    LOOP
        nth := answer_.nth; code := answer_.code; detail := answer_.detail; moment := answer_.moment;
        rings := answer_.rings;
        RETURN NEXT;
        IF answer_.code = 'now' THEN
            now_ := answer_.moment;
        ELSE
            refused_ := refused_ || answer_.nth;
        END IF;
    END LOOP;
    -- Without a time nothing was committed.
    IF now_ IS NOT NULL THEN
        PERFORM {schema}.put_workflow_writes{v}(now_, refused_, writes_, packs_, states_, state_bodies_, state_raws_, limits_);
    END IF;
END
$$
