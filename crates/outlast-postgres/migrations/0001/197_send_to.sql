-- Sends a payload to a hook of a run, from any language that can call a function. It is sent when the transaction
-- commits. What is sent to a run with one key is delivered once, the first time. The payload is JSON, as a text as with
-- `start_run`.
CREATE FUNCTION {schema}.send_to(run text, hook text, payload text DEFAULT 'null', key text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    id_ text;
    payload_ text := coalesce(payload::json::text, 'null');
    answer_ record;
BEGIN
    IF hook IS NULL OR octet_length(hook) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'the hook''s name is empty or longer than 128 bytes' USING ERRCODE = '22023';
    ELSIF octet_length(key) NOT BETWEEN 1 AND 256 THEN
        RAISE EXCEPTION 'the key of a send is empty or longer than 256 bytes' USING ERRCODE = '22023';
    END IF;
    PERFORM {schema}.check_payload(payload_);
    id_ := 'msg_' || {schema}.base32(coalesce({schema}.digest(run || ' ' || key), {schema}.new_bits({schema}.clock())));
    SELECT s.code, s.number, s.status INTO answer_ FROM {schema}.send(
        NULL, ARRAY[run], ARRAY[id_], ARRAY['hook'], ARRAY[{schema}.stored(hook)], ARRAY[NULL::bigint], ARRAY[NULL::text],
        ARRAY[NULL::text], ARRAY[payload_], ARRAY[NULL::bytea], ARRAY[NULL::text],
        ARRAY[10000::bigint], ARRAY['never']) AS s;
    IF answer_.code = 'none' THEN
        RAISE EXCEPTION 'there is no run %', run USING ERRCODE = '02000', HINT = 'check the id';
    ELSIF answer_.code = 'ended' THEN
        RAISE EXCEPTION 'run % has ended, it is %', run, answer_.status USING ERRCODE = '55000';
    ELSIF answer_.code = 'full' THEN
        RAISE EXCEPTION 'the inbox of run % is full: % messages are unread', run, answer_.number
            USING ERRCODE = '54000', HINT = 'wait until the run has read some';
    END IF;
    PERFORM {schema}.hint();
END
$$
