-- Adds runs that should have ended by `until_` to those that are chosen, locked: no more than so many in all, and one
-- suspect if there may be one.
CREATE FUNCTION {schema}.choose_overdue(
    until_ bigint, limit_ integer, suspect_ boolean, chosen_ text[], OUT ids text[], OUT has_suspect boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    late_ record;
BEGIN
    ids := chosen_; has_suspect := false;
    FOR late_ IN
        SELECT r.id, r.crashes >= 2 AS is_suspect FROM {schema}.runs r
        WHERE r.deadline <= until_ AND r.owner IS NULL AND r.id <> ALL (chosen_) AND (r.crashes < 2 OR suspect_)
        ORDER BY r.deadline, r.id LIMIT limit_ + 50 FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        CONTINUE WHEN late_.is_suspect AND has_suspect;
        has_suspect := has_suspect OR late_.is_suspect;
        ids := array_append(ids, late_.id);
        EXIT WHEN cardinality(ids) >= limit_;
    END LOOP;
END
$$
