-- Delivers the outboxes of turns that were just written, except of those in `refused_`: starts their children, sends
-- the results of these starts to the parents, and sends their messages. Returns the changes of counts, and the
-- differences between ids and now for the skew.
--
-- Each child has the failure that its parent gets in each case: `other`, `taken` (a run of the same workflow) and
-- `foreign` (of another workflow); `refused` is a failure that is known beforehand. In these texts placeholders stand
-- for the run and the workflow that only the database knows.
CREATE FUNCTION {schema}.deliver{v}(
    now_ bigint, children_ json, child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[], refused_ integer[],
    OUT statuses text[], OUT changes bigint[], OUT lowest bigint, OUT highest bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    put_ record;
    nths_ integer[] := '{}';
    codes_ text[] := '{}';
    runs_ text[] := '{}';
    workflows_ text[] := '{}';
    answers_ record;
    -- Messages of the engine are not limited.
    limits_ CONSTANT bigint[] := ARRAY[9223372036854775807, 9223372036854775807];
BEGIN
    IF json_array_length(children_) > 0 THEN
        FOR put_ IN SELECT * FROM {schema}.put_starts{v}(now_, children_, child_events_, refused_) LOOP
            IF put_.nth > 0 THEN
                nths_ := nths_ || put_.nth; codes_ := codes_ || put_.code; runs_ := runs_ || put_.run;
                workflows_ := workflows_ || put_.workflow;
            ELSIF put_.added > 0 THEN
                statuses := ARRAY['pending']; changes := ARRAY[put_.added];
                lowest := put_.lowest; highest := put_.highest;
            END IF;
        END LOOP;
        SELECT json_agg(json_build_object('run', t.parent, 'id', t.answer, 'op', t.parent_op,
                'kind', CASE WHEN t.failure IS NULL THEN 'child_started' ELSE 'refused' END) ORDER BY t.nth) AS messages,
            array_agg(coalesce(t.failure, t.there) ORDER BY t.nth) AS bodies
        INTO answers_
        FROM (
            SELECT c.nth, c.parent, c.answer, c.parent_op, coalesce(p.run, c.run) AS there,
                CASE WHEN c.refused IS NOT NULL THEN c.refused
                    WHEN p.code = 'taken' THEN replace(replace(
                        CASE WHEN p.workflow = c.workflow THEN c.taken ELSE c."foreign" END, c.mark_run, p.run),
                        c.mark_workflow, btrim(to_json(p.workflow)::text, '"'))
                    WHEN p.code = 'other' AND c.asks IS NOT TRUE THEN replace(c.other, c.mark_run, p.run) END AS failure,
                c.asks
            FROM ROWS FROM (json_to_recordset(children_) AS (run text, parent text, parent_op bigint, workflow text,
                turn_nth integer, answer text, asks boolean, refused text, other text, taken text, "foreign" text, mark_run text,
                mark_workflow text)) WITH ORDINALITY AS c (run, parent, parent_op, workflow, turn_nth, answer, asks, refused,
                other, taken, "foreign", mark_run, mark_workflow, nth)
            LEFT JOIN unnest(nths_, codes_, runs_, workflows_) AS p (nth, code, run, workflow) ON p.nth = c.nth
            WHERE c.turn_nth <> ALL (refused_) AND (c.asks OR c.refused IS NOT NULL OR p.code IN ('taken', 'other'))
        ) t;
        IF answers_.messages IS NOT NULL THEN
            PERFORM 1 FROM {schema}.put_messages{v}(now_, answers_.messages, answers_.bodies,
                array_fill(NULL::bytea, ARRAY[cardinality(answers_.bodies)]), limits_, '{}');
        END IF;
    END IF;
    IF json_array_length(messages_) > 0 THEN
        PERFORM 1 FROM {schema}.put_messages{v}(now_, messages_, bodies_, raws_, limits_, refused_);
    END IF;
END
$$
