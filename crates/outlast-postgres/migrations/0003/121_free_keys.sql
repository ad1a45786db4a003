-- Removes keys from runs that have had them for longer than the windows of these starts, from runs that have ended if
-- the start says that the key is held only while a run lives, and from all runs that a start replaces, in the order of
-- keys. A run that is replaced and has not ended gets a cancel: `replaces` is the id of that message.
--
-- These are the only rows that are locked after others. Another transaction that has locked one of them may wait for a
-- key that this one has inserted. Postgres then cancels one of the two (40P01), and the world repeats that call. It
-- takes a window that has just ended and a message to that run at the same time.
CREATE FUNCTION {schema}.free_keys{v}(now_ bigint, starts_ json) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    old_ record;
BEGIN
    IF position('"window":' IN starts_::text) = 0 AND position('"while_running":' IN starts_::text) = 0
        AND position('"replaces":' IN starts_::text) = 0 THEN
        RETURN;
    END IF;
    FOR old_ IN
        SELECT r.id, a.key, a.replaces, a.replaced_reason
        FROM json_to_recordset(starts_) AS a (run text, key text, "window" bigint, while_running boolean, replaces text,
            replaced_reason text)
        JOIN {schema}.runs r ON r.key = a.key
        WHERE r.id <> a.run AND NOT EXISTS (SELECT FROM {schema}.runs same WHERE same.id = a.run)
            AND (a."window" IS NOT NULL AND r.created_at <= now_ - a."window" OR a.while_running AND r.ended_at IS NOT NULL
                OR a.replaces IS NOT NULL)
        ORDER BY a.key COLLATE "C"
    LOOP
        UPDATE {schema}.runs SET key = NULL, key_digest = NULL WHERE id = old_.id AND key = old_.key;
        IF FOUND AND old_.replaces IS NOT NULL THEN
            PERFORM 1 FROM {schema}.put_messages{v}(now_,
                json_build_array(json_build_object('run', old_.id, 'id', old_.replaces, 'kind', 'cancel')),
                ARRAY[old_.replaced_reason], ARRAY[NULL]::bytea[], ARRAY[0, 0]::bigint[], '{}');
        END IF;
    END LOOP;
END
$$
