-- Records the outcome of a transactional step in the transaction of the step, as a message to its own run. It is called
-- in the last message of the transaction, together with COMMIT, so no lock is held while the server waits for the client.
-- It fails with OL002 if the session has ended or does not hold the run, with OL003 if the step has ended its transaction
-- itself, and with a violation of `inbox_id` if the outcome is already recorded. Returns the position and the time.
--
-- The lock on the session excludes a takeover, as in a commit. The run is held, so the message does not make it ready.
CREATE FUNCTION {schema}.record_outcome{v}(
    session_ text, at_ bigint, run_ text, id_ text, format_ integer, body_ text, attempt_ text
) RETURNS TABLE (number bigint, moment bigint) LANGUAGE plpgsql
SET lock_timeout = 1000 SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    IF current_setting('outlast.attempt', true) IS DISTINCT FROM attempt_ THEN
        RAISE EXCEPTION 'the step has ended its transaction' USING ERRCODE = 'OL003';
    END IF;
    PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session has ended' USING ERRCODE = 'OL002';
    END IF;
    SELECT r.sent + 1 INTO number FROM {schema}.runs r WHERE r.id = run_ AND r.owner = session_ FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session does not hold the run' USING ERRCODE = 'OL002';
    END IF;
    -- Read the clock after the row is locked: it is later than every turn that has fired a timer.
    moment := coalesce(at_, {schema}.clock{v}());
    INSERT INTO {schema}.inbox (run, position, id, at, kind, body) VALUES (run_, number, id_, moment, 'attempted', body_);
    UPDATE {schema}.runs r SET sent = number, updated_at = moment, format = greatest(r.format, format_) WHERE r.id = run_;
    RETURN NEXT;
END
$$
