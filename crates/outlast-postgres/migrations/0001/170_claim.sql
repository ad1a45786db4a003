-- Gives the session runs that are ready, in order of rank, and behind them those that are overdue. The first
-- row has no run: it brings the time, when the next run is due, and the next deadline; or `gone`.
--
-- Rows are locked as they are found, and those that others have locked are skipped: whoever asks at the same
-- time finds others. A claim that finds nothing writes nothing.
CREATE FUNCTION {schema}.claim(
    session_ text, at_ bigint, limit_ integer, queues_ text[], workflows_ text[], versions_ bigint[], build_ text,
    format_ integer, suspect_ boolean, overdue_from_ bigint, grace_ bigint, preference_ bigint
) RETURNS TABLE (
    code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint,
    consumed bigint, crashes integer, deadline bigint, is_overdue boolean, moment bigint, next_due bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock());
    chosen_ text[] := '{}';
    ready_ integer;
    has_suspect_ boolean := false;
    due_ bigint;
    late_ record;
    lines_ record;
BEGIN
    PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    -- All lines with something ready, and those that are the next to have; of the rest only the moment counts.
    SELECT coalesce(array_agg(l.queue) FILTER (WHERE l.counts), '{}') AS queues,
        coalesce(array_agg(l.workflow) FILTER (WHERE l.counts), '{}') AS workflows,
        coalesce(array_agg(l.version) FILTER (WHERE l.counts), '{}') AS versions,
        coalesce(array_agg(l.format) FILTER (WHERE l.counts), '{}') AS formats,
        coalesce(array_agg(l.barred) FILTER (WHERE l.counts), '{}') AS barred,
        coalesce(array_agg(l.priority) FILTER (WHERE l.counts), '{}') AS priorities,
        coalesce(array_agg(l.is_suspect) FILTER (WHERE l.counts), '{}') AS suspects,
        coalesce(array_agg(l.head) FILTER (WHERE l.counts), '{}') AS heads,
        min(l.head) FILTER (WHERE NOT l.counts) AS rest
    INTO lines_
    FROM (
        SELECT o.*, o.head <= now_ OR row_number() OVER (ORDER BY o.head <= now_, o.head) <= 5 AS counts
        FROM (
            SELECT n.*, false AS is_suspect
            FROM {schema}.lines(queues_, workflows_, versions_, build_, format_, false) n
            UNION ALL
            SELECT n.*, true FROM {schema}.lines(queues_, workflows_, versions_, build_, format_, true) n WHERE suspect_
        ) o
    ) l;
    IF limit_ > 0 THEN
        SELECT coalesce(array_agg(c.id ORDER BY c.rank, c.id), '{}'), coalesce(bool_or(c.is_suspect), false)
        INTO chosen_, has_suspect_
        FROM {schema}.ready(session_, now_, limit_, suspect_, preference_, lines_.queues, lines_.workflows,
            lines_.versions, lines_.formats, lines_.barred, lines_.priorities, lines_.suspects,
            lines_.heads) c;
    END IF;
    ready_ := cardinality(chosen_);
    IF overdue_from_ <= now_ AND ready_ < limit_ THEN
        FOR late_ IN
            SELECT r.id, r.crashes >= 2 AS is_suspect FROM {schema}.runs r
            WHERE r.deadline <= now_ - grace_ AND r.owner IS NULL AND r.id <> ALL (chosen_)
                AND (r.crashes < 2 OR suspect_ AND NOT has_suspect_)
            ORDER BY r.deadline, r.id LIMIT limit_ + 50 FOR NO KEY UPDATE SKIP LOCKED
        LOOP
            CONTINUE WHEN late_.is_suspect AND has_suspect_;
            has_suspect_ := has_suspect_ OR late_.is_suspect;
            chosen_ := array_append(chosen_, late_.id);
            EXIT WHEN cardinality(chosen_) >= limit_;
        END LOOP;
    END IF;
    IF cardinality(chosen_) > 0 THEN
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR KEY SHARE;
        IF NOT FOUND THEN
            code := 'gone';
            RETURN NEXT;
            RETURN;
        END IF;
        RETURN QUERY SELECT g.* FROM {schema}.give(session_, now_, chosen_, ready_) g;
    END IF;
    due_ := least(lines_.rest, {schema}.next_due(session_, now_, limit_ > ready_, suspect_, preference_, lines_.queues,
        lines_.workflows, lines_.versions, lines_.formats, lines_.barred, lines_.priorities, lines_.suspects));
    RETURN QUERY SELECT 'now', NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint,
        NULL::bigint, NULL::bigint, NULL::integer,
        (SELECT r.deadline FROM {schema}.runs r WHERE r.owner IS NULL
            AND r.deadline > CASE WHEN overdue_from_ <= now_ THEN now_ - grace_ ELSE -9223372036854775808 END
         ORDER BY r.deadline LIMIT 1),
        NULL::boolean, now_, due_;
END
$$
