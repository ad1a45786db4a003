-- Commits turns that take or free tokens, or reply to messages: as `commit_writes`, and in the same transaction that.
-- Other turns use `commit` or `commit_writes`, so that they do not pay for this.
CREATE FUNCTION {schema}.commit_tokens{v}(
    session_ text, at_ bigint, how_ json, locked_ text[], turns_ json, events_ text[], children_ json,
    child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[], writes_ json, packs_ text[], states_ json,
    state_bodies_ text[], state_raws_ bytea[], limits_ bigint[], freed_ json, taken_ json, token_bodies_ text[],
    token_raws_ bytea[], replies_ json, reply_bodies_ text[], reply_raws_ bytea[]
) RETURNS TABLE (nth integer, code text, detail text, moment bigint, rings boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    answer_ record;
    now_ bigint;
    refused_ integer[] := '{}';
BEGIN
    FOR answer_ IN SELECT c.nth, c.code, c.detail, c.moment, c.rings FROM {schema}.commit_writes{v}(session_, at_, how_,
        locked_, turns_, events_, children_, child_events_, messages_, bodies_, raws_, writes_, packs_, states_,
        state_bodies_, state_raws_, limits_) c
    LOOP
        nth := answer_.nth; code := answer_.code; detail := answer_.detail; moment := answer_.moment;
        -- A run that gets an answer may be ready for another worker.
        rings := answer_.rings OR json_array_length(taken_) > 0;
        RETURN NEXT;
        IF answer_.code = 'now' THEN
            now_ := answer_.moment;
        ELSE
            refused_ := refused_ || answer_.nth;
        END IF;
    END LOOP;
    -- Without a time nothing was committed.
    IF now_ IS NOT NULL THEN
        PERFORM {schema}.put_tokens{v}(now_, refused_, freed_, taken_, token_bodies_, token_raws_);
        PERFORM {schema}.put_replies{v}(now_, refused_, replies_, reply_bodies_, reply_raws_);
    END IF;
END
$$
