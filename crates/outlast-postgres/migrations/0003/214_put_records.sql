-- Stores records of a space: all of them, or none if the space would have more than `max_`. Existing ones are replaced if
-- `replaces_`. Returns how many are new, or null if they are too many.
CREATE FUNCTION {schema}.put_records{v}(
    at_ bigint, space_ text, ids_ text[], bodies_ text[], replaces_ boolean, max_ bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock{v}());
    count_ bigint;
    new_ bigint;
BEGIN
    INSERT INTO {schema}.record_counts (space, n) VALUES (space_, 0) ON CONFLICT DO NOTHING;
    SELECT c.n INTO count_ FROM {schema}.record_counts c WHERE c.space = space_ FOR NO KEY UPDATE;
    SELECT count(*) INTO new_ FROM unnest(ids_) AS i (id)
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.records r WHERE r.space = space_ AND r.id = i.id);
    IF new_ > 0 AND count_ + new_ > max_ THEN
        RETURN NULL;
    END IF;
    INSERT INTO {schema}.records AS r (space, id, body, at)
    SELECT space_, i.id, i.body, now_ FROM unnest(ids_, bodies_) AS i (id, body)
    ON CONFLICT (space, id) DO UPDATE SET body = excluded.body, at = excluded.at WHERE replaces_;
    IF new_ > 0 THEN
        UPDATE {schema}.record_counts c SET n = c.n + new_ WHERE c.space = space_;
    END IF;
    RETURN new_;
END
$$
