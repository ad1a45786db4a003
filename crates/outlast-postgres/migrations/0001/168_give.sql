-- Gives runs that are locked to a session, each with its only turn if it has but one. The build that left one stuck
-- stays barred.
CREATE FUNCTION {schema}.give(session_ text, now_ bigint, chosen_ text[], ready_ integer)
RETURNS TABLE (
    code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint,
    consumed bigint, crashes integer, deadline bigint, is_overdue boolean, moment bigint, next_due bigint,
    first_build text, first_events text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moved_ record;
BEGIN
    SELECT array_agg(r.status::text) || array_agg('running'::text) AS statuses,
        array_agg(-1::bigint) || array_agg(1::bigint) AS changes
    INTO moved_ FROM {schema}.runs r WHERE r.id = ANY (chosen_);
    RETURN QUERY WITH given AS (
        UPDATE {schema}.runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL, waits = '[]',
            ready_at = NULL, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL
        FROM unnest(chosen_) WITH ORDINALITY AS c (id, nth)
        WHERE r.id = c.id
        RETURNING r.*, c.nth
    )
    SELECT 'given', g.id::text, g.workflow::text, g.version, g.turn::text, g.next_seq, g.turn_at, g.sent, g.consumed,
        g.crashes, g.deadline, g.nth > ready_, NULL::bigint, NULL::bigint, t.build, t.events
    FROM given g LEFT JOIN {schema}.turns t ON t.run = g.id AND t.seq = 0 AND g.next_seq = 1
    ORDER BY g.nth;
    PERFORM {schema}.count(moved_.statuses, moved_.changes);
END
$$
