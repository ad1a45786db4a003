-- Takes the runs of a session whose row was deleted. When it crashed, each crash is counted, that of a suspect
-- only against the suspect, and after too many of them the run is stuck. Answers how many runs that were.
--
-- The rows are locked before they are looked at: a message that is on its way comes before this or after it, and
-- neither does away with what the other wrote.
CREATE FUNCTION {schema}.free(
    session_ text, now_ bigint, has_crashed_ boolean, build_ text, poison_ integer, message_ text, mark_ text
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moved_ record;
BEGIN
    PERFORM 1 FROM {schema}.runs r WHERE r.owner = session_ ORDER BY r.owner, r.id FOR NO KEY UPDATE;
    WITH held AS (
        SELECT r.id, r.consumed, r.codeless,
            CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            CASE WHEN last.next_seq > r.next_seq THEN last.at ELSE r.turn_at END AS turn_at,
            greatest(last.next_seq, r.next_seq) AS next_seq,
            CASE WHEN NOT has_crashed_ OR r.crashes < 2 AND bool_or(r.crashes >= 2) OVER () THEN r.crashes
                ELSE r.crashes + 1 END AS crashes
        FROM {schema}.runs r
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq, t.at FROM {schema}.turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last
        ON true
        WHERE r.owner = session_
    ), judged AS (
        SELECT h.*, has_crashed_ AND h.crashes >= poison_ AS is_stuck,
            CASE WHEN h.codeless <= h.consumed THEN 0 WHEN h.next_seq = 1 THEN h.codeless ELSE
                (SELECT coalesce(max(i.position), 0) FROM {schema}.inbox i
                 WHERE i.run = h.id AND i.position > h.consumed AND i.kind = 'terminate') END AS obeys
        FROM held h
    ), freed AS (
        UPDATE {schema}.runs r SET
            status = CASE WHEN j.is_stuck THEN 'stuck' ELSE 'pending' END,
            owner = NULL, preferred = NULL, turn = j.turn, next_seq = j.next_seq, turn_at = j.turn_at,
            updated_at = now_, wake_at = NULL, waits = '[]', crashes = j.crashes,
            ready_at = CASE WHEN NOT j.is_stuck OR j.obeys > 0 THEN now_ END,
            codeless = j.obeys,
            stuck_reason = CASE WHEN j.is_stuck THEN 'poison' END,
            stuck_message = CASE WHEN j.is_stuck THEN replace(message_, mark_, j.crashes::text) END,
            stuck_build = CASE WHEN j.is_stuck THEN build_ END,
            barred_build = CASE WHEN j.is_stuck THEN build_ ELSE r.barred_build END
        FROM judged j WHERE r.id = j.id
        RETURNING r.status
    )
    SELECT array_agg(f.status::text) || array_agg('running'::text) AS statuses,
        array_agg(1::bigint) || array_agg(-1::bigint) AS changes, count(*) AS n
    INTO moved_ FROM freed f;
    IF moved_.n > 0 THEN
        PERFORM {schema}.count(moved_.statuses, moved_.changes);
    END IF;
    RETURN moved_.n;
END
$$
