-- Sends a payload to a hook of a run, from any language that can call a function. It is sent when the transaction
-- commits. Of several payloads with the same key to one run, only the first is delivered. The payload is JSON, passed
-- as text as with `start_run`.
CREATE OR REPLACE FUNCTION {schema}.send_to(run text, hook text, payload text DEFAULT 'null', key text DEFAULT NULL)
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
    PERFORM {schema}.check_payload{v}(payload_);
    id_ := 'msg_' || {schema}.base32{v}(coalesce({schema}.digest{v}(run || ' ' || key), {schema}.new_bits{v}({schema}.clock{v}())));
    SELECT s.code, s.number, s.status, s.kept INTO answer_ FROM {schema}.send{v}(NULL, ARRAY[run],
        json_build_array(json_build_object('run', run, 'id', id_, 'kind', 'hook', 'name', {schema}.stored{v}(hook))),
        ARRAY[payload_], ARRAY[NULL::bytea], ARRAY[10000, 10000]::bigint[]) AS s;
    IF answer_.code = 'none' THEN
        RAISE EXCEPTION 'there is no run %', run USING ERRCODE = '02000', HINT = 'check the id';
    ELSIF answer_.code = 'ended' THEN
        RAISE EXCEPTION 'run % has ended, it is %', run, answer_.status USING ERRCODE = '55000';
    ELSIF answer_.code = 'full' THEN
        RAISE EXCEPTION 'the inbox of run % is full: % messages are unread and % payloads kept', run, answer_.number, answer_.kept
            USING ERRCODE = '54000', HINT = 'wait until the run has read some';
    END IF;
    PERFORM {schema}.hint{v}();
END
$$
