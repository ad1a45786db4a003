-- Deletes the tokens and replies of deleted runs. Tokens that are kept for some time after the end of their run stay. A
-- trigger calls it, so that programs that know no tokens delete them too. In a world without tokens and replies it reads
-- two pages, however many runs are deleted.
CREATE FUNCTION {schema}.forget_tokens() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT t.hash FROM {schema}.tokens t ORDER BY t.hash LIMIT 1) IS NOT NULL THEN
        UPDATE {schema}.tokens t SET kept_until = g.ended_at + t.keep_for
        FROM gone g WHERE t.run = g.id AND t.keep_for IS NOT NULL AND t.kept_until IS NULL;
        DELETE FROM {schema}.tokens t USING gone g WHERE t.run = g.id AND t.kept_until IS NULL;
    END IF;
    IF (SELECT r.run FROM {schema}.replies r ORDER BY r.run, r.message LIMIT 1) IS NOT NULL THEN
        DELETE FROM {schema}.replies r USING gone g WHERE r.run = g.id;
    END IF;
    RETURN NULL;
END
$$
