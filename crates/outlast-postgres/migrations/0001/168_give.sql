-- Assigns locked runs to a session, each with its turn if it has only one. The `stuck_` columns of a stuck run stay
-- until it progresses. The code of a run that can be ended without its code is `ending`. `is_known` is whether the
-- session held the run last, `has_details` whether attempts of lost workers left heartbeat details.
--
-- The first turns are read with `LIMIT`, one index lookup for each run. In a plain join, Postgres may instead compare
-- each run with the first turns of all runs, if it has no statistics of the table yet.
CREATE FUNCTION {schema}.give{v}(session_ text, now_ bigint, chosen_ text[], ready_ integer)
RETURNS TABLE (
    code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint,
    consumed bigint, is_known boolean, has_details boolean, is_overdue boolean, moment bigint, next_due bigint,
    next_deadline bigint, first_build text, first_events text, {column_types}
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moved_ record;
BEGIN
    SELECT array_agg(r.status::text) || array_agg('running'::text) AS statuses,
        array_agg(-1::bigint) || array_agg(1::bigint) AS changes, max(r.next_seq) AS last_seq
    INTO moved_ FROM {schema}.runs r WHERE r.id = ANY (chosen_);
    IF moved_.last_seq = 1 THEN
        -- All runs are new. This claim need not be durable: nothing happens in a run before its first commit, which
        -- makes the claim durable as well. If the server crashes earlier, the runs can be claimed again.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN QUERY WITH given AS (
        UPDATE {schema}.runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL, waits = '[]',
            ready_at = NULL
        FROM unnest(chosen_) WITH ORDINALITY AS c (id, nth)
        WHERE r.id = c.id
        RETURNING r.*, c.nth
    )
    SELECT CASE WHEN g.ends_without_code THEN 'ending' ELSE 'given' END, g.id::text, g.workflow::text, g.version, g.turn::text, g.next_seq, g.turn_at, g.sent, g.consumed,
        coalesce(g.preferred = session_, false),
        EXISTS (SELECT 1 FROM {schema}.heartbeats h WHERE h.run = g.id),
        g.nth > ready_, NULL::bigint, NULL::bigint, NULL::bigint, t.build, t.events, {g.columns}
    FROM given g
    LEFT JOIN LATERAL (SELECT f.build, f.events FROM {schema}.turns f
        WHERE f.run = g.id AND f.seq = 0 AND g.next_seq = 1 LIMIT 1) t ON true
    ORDER BY g.nth;
    PERFORM {schema}.count{v}(moved_.statuses, moved_.changes);
END
$$
