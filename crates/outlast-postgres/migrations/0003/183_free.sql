-- Releases a part of the runs of a session that has ended. Returns how many, and whether there are more. Rows that
-- other transactions have locked are left for the next time. The new row of each run is that of `Released::of` of
-- outlast-core: if the session crashed, the crash is counted as in `count_crash`, and after too many crashes the run is
-- stuck. `limits_` are those of outlast-core.
CREATE FUNCTION {schema}.free{v}(at_ bigint, session_ text, part_ integer, limits_ json)
RETURNS TABLE (freed bigint, has_more boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock{v}());
    poison_ CONSTANT integer := (limits_ ->> 'poison_crashes')::integer;
    suspect_ CONSTANT integer := (limits_ ->> 'suspect_crashes')::integer;
    class_max_ CONSTANT integer := (limits_ ->> 'crash_class_max')::integer;
    ended_ record;
    moved_ record;
BEGIN
    SELECT s.crashed, s.held_runs, s.held_class, s.build INTO ended_
    FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NOT NULL;
    IF NOT FOUND THEN
        freed := 0; has_more := false;
        RETURN NEXT;
        RETURN;
    END IF;
    WITH locked AS (
        SELECT r.id FROM {schema}.runs r WHERE r.owner = session_ ORDER BY r.owner, r.id LIMIT part_
        FOR NO KEY UPDATE SKIP LOCKED
    ), held AS (
        SELECT r.*, tip.turn AS tip_turn, tip.at AS tip_at, tip.seq AS tip_seq,
            CASE WHEN r.failed_builds <> '' AND tip.seq <= r.failed_at THEN r.failed_builds::text ELSE '' END AS failed,
            ended_.crashed AND CASE WHEN ended_.held_class >= suspect_ AND ended_.held_class < class_max_
                THEN least(r.crashes, class_max_) = ended_.held_class
                ELSE least(r.crashes, class_max_) < class_max_ OR ended_.held_runs = 1 END AS is_counted
        FROM locked l JOIN {schema}.runs r ON r.id = l.id
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq, t.at FROM {schema}.turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last
        ON true
        CROSS JOIN LATERAL (SELECT CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            CASE WHEN last.next_seq > r.next_seq THEN last.at ELSE r.turn_at END AS at,
            greatest(last.next_seq, r.next_seq) AS seq) tip
    ), judged AS (
        SELECT h.id, h.tip_turn, h.tip_at, h.tip_seq, h.failed, after.crashes, h.is_counted AND after.crashes >= poison_ AS is_poison,
            h.stuck_reason IS NOT NULL AS was_stuck,
            h.last_terminate > h.consumed OR h.tip_seq <= 1 AND h.last_cancel > h.consumed AS can_end
        FROM held h
        CROSS JOIN LATERAL (SELECT CASE WHEN h.is_counted THEN least(h.crashes + 1, poison_) ELSE h.crashes END AS crashes) after
    ), failed AS (
        SELECT j.*, f.list, f.replaced_oldest FROM judged j
        LEFT JOIN LATERAL {schema}.failed_with{v}(j.failed, ended_.build, (limits_ ->> 'failed_builds')::integer) f ON j.is_poison
    ), written AS (
        UPDATE {schema}.runs r SET
            status = CASE WHEN f.is_poison OR f.was_stuck THEN 'stuck' ELSE 'pending' END,
            owner = NULL, preferred = NULL, turn = f.tip_turn, next_seq = f.tip_seq, turn_at = f.tip_at,
            updated_at = now_, wake_at = NULL, waits = '[]', crashes = f.crashes,
            -- Bit 1 of the marks: the run is paused.
            ready_at = CASE WHEN r.marks & 1 <> 0 AND NOT f.can_end THEN r.deadline
                ELSE now_ + CASE WHEN f.replaced_oldest AND NOT f.can_end THEN (limits_ ->> 'retry')::bigint ELSE 0 END END,
            stuck_reason = CASE WHEN f.is_poison THEN 'poison' WHEN f.was_stuck THEN r.stuck_reason END,
            stuck_message = CASE WHEN f.is_poison THEN limits_ ->> 'message' WHEN f.was_stuck THEN r.stuck_message END,
            stuck_build = CASE WHEN f.is_poison THEN ended_.build WHEN f.was_stuck THEN r.stuck_build END,
            failed_builds = CASE WHEN f.is_poison THEN f.list ELSE f.failed END,
            failed_at = CASE WHEN f.is_poison THEN f.tip_seq WHEN f.failed <> '' THEN r.failed_at ELSE 0 END
        FROM failed f WHERE r.id = f.id
        RETURNING r.status
    )
    SELECT array_agg(w.status::text) || array_agg('running'::text) AS statuses,
        array_agg(1::bigint) || array_agg(-1::bigint) AS changes, count(*) AS n
    INTO moved_ FROM written w;
    IF moved_.n > 0 THEN
        PERFORM {schema}.count{v}(moved_.statuses, moved_.changes);
    END IF;
    freed := moved_.n;
    has_more := EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.owner = session_);
    RETURN NEXT;
END
$$
