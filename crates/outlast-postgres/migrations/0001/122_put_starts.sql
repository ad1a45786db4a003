-- Starts runs that no session holds, except those of the turns in `refused_` and those with `refused`. Returns the
-- starts that found an existing run: `same` is a run with the same id, `other` a run with the same key, workflow and
-- input, and `taken` a run with the same key but another workflow or input. The last row, number 0, has the number of
-- new runs and the smallest and largest difference between the time in their ids and now, in milliseconds; the caller
-- adds them to counts and skew, after it has taken all other locks.
--
-- The starts contain no run twice; of several with the same key, the first gets the key. Keys are inserted in their
-- order, to avoid deadlocks. If another transaction has inserted the same run meanwhile, everything is rolled back
-- (40001), and the caller tries again.
CREATE FUNCTION {schema}.put_starts{v}(now_ bigint, starts_ json, events_ text[], refused_ integer[])
RETURNS TABLE (
    nth integer, code text, run text, workflow text, added bigint, lowest bigint, highest bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    put_ record;
BEGIN
    PERFORM {schema}.free_keys{v}(now_, starts_);
    WITH given AS (
        SELECT a.*, first_value(a.nth) OVER w AS first_nth, first_value(a.run) OVER w AS first_run,
            first_value(a.workflow) OVER w AS first_workflow, first_value(a.digest) OVER w AS first_digest
        FROM ROWS FROM (
            json_to_recordset(starts_) AS (run text, turn text, born bigint, rules integer, workflow text, version bigint,
                format integer, queue text, priority smallint, key text, digest text, parent text, parent_op bigint,
                awaits boolean, root text, not_before bigint, deadline bigint, tags json, turn_nth integer, refused text),
            unnest(events_)
        ) WITH ORDINALITY AS a (run, turn, born, rules, workflow, version, format, queue, priority, key, digest, parent,
            parent_op, awaits, root, not_before, deadline, tags, turn_nth, refused, events, nth)
        WHERE a.refused IS NULL AND (a.turn_nth IS NULL OR a.turn_nth <> ALL (refused_))
        WINDOW w AS (PARTITION BY a.key ORDER BY a.nth)
    ), asked AS (
        SELECT a.*, CASE WHEN same.id IS NOT NULL THEN 'same'
                WHEN other.id IS NULL AND (a.key IS NULL OR a.nth = a.first_nth) THEN 'new'
                WHEN coalesce(other.workflow, a.first_workflow) = a.workflow
                    AND coalesce(other.key_digest, a.first_digest) = a.digest THEN 'other'
                ELSE 'taken' END AS code,
            coalesce(same.id, other.id, a.first_run) AS there, coalesce(other.workflow, a.first_workflow) AS there_workflow
        FROM given a
        LEFT JOIN LATERAL (SELECT r.id FROM {schema}.runs r WHERE r.id = a.run) same ON true
        LEFT JOIN LATERAL (SELECT r.id, r.workflow, r.key_digest FROM {schema}.runs r WHERE r.key = a.key) other ON true
    ), added AS (
        INSERT INTO {schema}.runs (id, workflow, version, format, queue, priority, key, key_digest, status, turn, next_seq,
            turn_at, created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
        SELECT a.run, a.workflow, a.version, a.format, a.queue, a.priority, a.key, a.digest, 'pending', a.turn, 1,
            now_, now_, now_, CASE WHEN a.not_before > now_ THEN a.not_before END,
            CASE WHEN a.not_before > now_ THEN a.not_before ELSE now_ END,
            a.parent, a.parent_op, a.awaits, a.root, a.deadline
        FROM asked a WHERE a.code = 'new' ORDER BY a.key COLLATE "C" NULLS FIRST, a.nth
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), begun AS (
        INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
        SELECT a.run, 0, 1, a.turn, now_, '', a.events FROM asked a WHERE a.code = 'new'
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), tagged AS (
        INSERT INTO {schema}.tags (run, name, value)
        SELECT a.run, t.key, t.value FROM asked a CROSS JOIN LATERAL json_each_text(a.tags) AS t (key, value)
        WHERE a.code = 'new' AND a.tags IS NOT NULL
        ON CONFLICT DO NOTHING
    ), there AS (
        SELECT a.nth, a.code, a.there, a.there_workflow FROM asked a WHERE a.code <> 'new'
    )
    SELECT (SELECT count(*) FROM asked a WHERE a.code = 'new') AS new,
        (SELECT array_agg(a.run) FROM asked a WHERE a.code = 'new') AS new_runs, (SELECT count(*) FROM added) AS added,
        (SELECT count(*) FROM begun) AS begun,
        (SELECT max(a.rules) FROM asked a WHERE a.code = 'new') AS rules,
        (SELECT min(a.born) FROM asked a) AS first, (SELECT max(a.born) FROM asked a) AS last,
        (SELECT array_agg(t.nth::integer ORDER BY t.nth) FROM there t) AS nths,
        (SELECT array_agg(t.code ORDER BY t.nth) FROM there t) AS codes,
        (SELECT array_agg(t.there::text ORDER BY t.nth) FROM there t) AS runs,
        (SELECT array_agg(t.there_workflow::text ORDER BY t.nth) FROM there t) AS workflows
    INTO put_;
    IF put_.added <> put_.new THEN
        RAISE EXCEPTION 'another try of a start was faster' USING ERRCODE = '40001';
    END IF;
    IF put_.new > 0 THEN
        PERFORM {schema}.check_rules{v}(put_.rules);
    END IF;
    IF put_.begun <> put_.new THEN
        PERFORM {schema}.forget{v}(put_.new_runs);
        INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
        SELECT a.run, 0, 1, a.turn, now_, '', a.events
        FROM ROWS FROM (json_to_recordset(starts_) AS (run text, turn text), unnest(events_)) AS a (run, turn, events)
        WHERE a.run = ANY (put_.new_runs);
    END IF;
    IF put_.nths IS NOT NULL THEN
        RETURN QUERY SELECT t.nth, t.code, t.run, t.workflow, NULL::bigint, NULL::bigint, NULL::bigint
        FROM unnest(put_.nths, put_.codes, put_.runs, put_.workflows) AS t (nth, code, run, workflow);
    END IF;
    nth := 0; code := 'added'; run := NULL; workflow := NULL; added := put_.new;
    lowest := put_.first - now_ / 1000; highest := put_.last - now_ / 1000;
    RETURN NEXT;
END
$$
