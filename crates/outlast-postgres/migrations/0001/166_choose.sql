-- Runs that the session may have now, locked, in order of rank: at most so many, of them at most one suspect.
CREATE FUNCTION {schema}.choose(
    session_ text, now_ bigint, limit_ integer, suspect_ boolean, preference_ bigint, lines_ {schema}.line[],
    has_codeless_ boolean, OUT ids text[], OUT has_suspect boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    line_ {schema}.line;
    found_ record;
    ranks_ bigint[] := '{}';
    suspect_id_ text;
    suspect_rank_ bigint;
    is_sorted_ boolean := true;
BEGIN
    ids := '{}';
    FOREACH line_ IN ARRAY lines_ LOOP
        CONTINUE WHEN line_.head > now_;
        found_ := {schema}.ready(session_, now_, limit_, preference_, line_);
        CONTINUE WHEN found_.ids IS NULL;
        IF NOT line_.is_suspect THEN
            is_sorted_ := cardinality(ids) = 0;
            ids := ids || found_.ids; ranks_ := ranks_ || found_.ranks;
        ELSIF suspect_id_ IS NULL OR (found_.ranks[1], found_.ids[1] COLLATE "C") < (suspect_rank_, suspect_id_) THEN
            suspect_id_ := found_.ids[1]; suspect_rank_ := found_.ranks[1];
        END IF;
    END LOOP;
    IF has_codeless_ THEN
        FOR found_ IN
            SELECT r.id::text, r.ready_at, r.crashes >= 2 AS is_suspect FROM {schema}.runs r
            WHERE r.codeless > 0 AND r.ready_at IS NOT NULL AND (suspect_ OR r.crashes < 2) AND r.ready_at <= now_
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = r.preferred))
            ORDER BY r.ready_at, r.id LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED
        LOOP
            is_sorted_ := false;
            IF NOT found_.is_suspect THEN
                ids := array_append(ids, found_.id); ranks_ := array_append(ranks_, found_.ready_at);
            ELSIF suspect_id_ IS NULL OR (found_.ready_at, found_.id COLLATE "C") < (suspect_rank_, suspect_id_) THEN
                suspect_id_ := found_.id; suspect_rank_ := found_.ready_at;
            END IF;
        END LOOP;
    END IF;
    IF suspect_id_ IS NOT NULL THEN
        is_sorted_ := false;
        ids := array_append(ids, suspect_id_); ranks_ := array_append(ranks_, suspect_rank_);
    END IF;
    IF NOT is_sorted_ THEN
        SELECT coalesce(array_agg(c.id ORDER BY c.rank, c.id COLLATE "C"), '{}') INTO ids FROM (
            SELECT u.id, u.rank FROM unnest(ids, ranks_) AS u (id, rank) ORDER BY u.rank, u.id COLLATE "C" LIMIT limit_) c;
    END IF;
    has_suspect := coalesce(suspect_id_ = ANY (ids), false);
END
$$
