-- Deletes one run that has ended and is not in quarantine (bit 8 of the marks), as `prune` does. Returns the status and
-- the marks that it had, no status if it does not exist, and whether it was deleted.
CREATE FUNCTION {schema}.delete{v}(
    id_ text, rows_ integer, OUT status text, OUT marks integer, OUT is_deleted boolean, OUT has_leftovers boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    is_deleted := false; has_leftovers := false;
    SELECT r.status, r.marks INTO status, marks FROM {schema}.runs r WHERE r.id = id_ FOR UPDATE;
    DELETE FROM {schema}.runs r WHERE r.id = id_ AND r.ended_at IS NOT NULL AND r.marks & 8 = 0;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    is_deleted := true;
    DELETE FROM {schema}.tags t WHERE t.run = id_;
    DELETE FROM {schema}.heartbeats h WHERE h.run = id_;
    IF NOT {schema}.sweep{v}(ARRAY[id_], rows_, false) THEN
        INSERT INTO {schema}.leftovers (run) VALUES (id_) ON CONFLICT DO NOTHING;
    END IF;
    PERFORM {schema}.count{v}(ARRAY[status], ARRAY[-1::bigint]);
    has_leftovers := EXISTS (SELECT 1 FROM {schema}.leftovers);
END
$$
