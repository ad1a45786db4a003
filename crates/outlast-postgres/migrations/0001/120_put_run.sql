-- Inserts the row of a run, unless its id or key is taken. The answer is `new`, `same` when the run was there
-- by its id, `other` when another was there by its key, `taken` when that one is of another workflow or
-- input. A key that was taken longer ago than the window is taken away from its run. Whoever calls this counts what
-- is new and notes its skew, when no other keys follow: others wait for those rows too.
CREATE FUNCTION {schema}.put_run(
    new_ {schema}.runs, window_ bigint, names_ text[], values_ text[],
    OUT code text, OUT run text, OUT workflow text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    found_ record;
BEGIN
    FOR try_ IN 1..10 LOOP
        INSERT INTO {schema}.runs VALUES (new_.*) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            IF cardinality(names_) > 0 THEN
                PERFORM {schema}.put_tags(new_.id, names_, values_);
            END IF;
            code := 'new'; run := new_.id;
            RETURN;
        END IF;
        PERFORM 1 FROM {schema}.runs WHERE id = new_.id;
        IF FOUND THEN
            code := 'same'; run := new_.id;
            RETURN;
        END IF;
        SELECT r.id, r.workflow, r.key_digest, r.created_at INTO found_ FROM {schema}.runs r WHERE r.key = new_.key;
        CONTINUE WHEN NOT FOUND;
        IF window_ IS NOT NULL AND found_.created_at <= new_.created_at - window_ THEN
            -- The only row that is locked behind keys. Somebody who has it may wait for one of those: then Postgres
            -- undoes one of the two (40P01), and the world makes that call again. It takes a window that has just
            -- ended and a message to that run at the same moment.
            UPDATE {schema}.runs SET key = NULL, key_digest = NULL WHERE id = found_.id AND key = new_.key;
            CONTINUE;
        END IF;
        code := CASE WHEN found_.workflow = new_.workflow AND found_.key_digest = new_.key_digest
                     THEN 'other' ELSE 'taken' END;
        run := found_.id; workflow := found_.workflow;
        RETURN;
    END LOOP;
    RAISE EXCEPTION 'run % was neither new nor there', new_.id USING ERRCODE = '40001';
END
$$
