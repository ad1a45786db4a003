-- Starts a run, or finds the one that its key names, and sends it a message. Returns the rows of `start`, and a row
-- number 2 with the answer to the message, unless the key names a run of another workflow or input. The run in the
-- message is replaced by the one that was started or found.
CREATE FUNCTION {schema}.start_and_send{v}(
    at_ bigint, start_ json, events_ text[], own_ text, message_ json, bodies_ text[], raws_ bytea[], limits_ bigint[]
) RETURNS TABLE (
    nth integer, code text, run text, workflow text, moment bigint, number bigint, status text, kept bigint,
    was_cancelled boolean, holder_host text, holder_pid bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    started_ record;
    run_ text := own_;
    now_ bigint;
    is_taken_ boolean := false;
BEGIN
    FOR started_ IN SELECT * FROM {schema}.start{v}(at_, start_, events_, false) LOOP
        nth := started_.nth; code := started_.code; run := started_.run; workflow := started_.workflow;
        moment := started_.moment;
        RETURN NEXT;
        IF started_.nth = 0 THEN
            now_ := started_.moment;
        ELSE
            run_ := started_.run;
            is_taken_ := started_.code = 'taken';
        END IF;
    END LOOP;
    IF is_taken_ THEN
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.runs r WHERE r.id = run_ FOR NO KEY UPDATE;
    -- Read the clock after the row is locked: it is later than every turn that has fired a timer.
    now_ := coalesce(at_, greatest(now_, {schema}.clock{v}()));
    RETURN QUERY SELECT 2, p.code, run_, NULL::text, now_, p.number, p.status, p.kept, p.was_cancelled, p.holder_host,
        p.holder_pid
    FROM {schema}.put_messages{v}(now_, json_build_array((message_::jsonb || jsonb_build_object('run', run_))::json),
        bodies_, raws_, limits_, '{}') p;
END
$$
