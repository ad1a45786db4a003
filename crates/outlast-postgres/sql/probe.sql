-- Checks whether commits work, apart from the content of turns: executes a commit without turns and the functions that
-- it calls, checks the privileges on all tables, and writes {bytes} bytes. Everything is rolled back. No trigger of a
-- user fires.
DO $probe$
BEGIN
    PERFORM 1 FROM {schema}.commit{v}('{session}', NULL, '{"wait_ms":1000}', '{}', '[]', '{}', '[]', '{}', '[]', '{}', '{}');
    PERFORM {schema}.deliver{v}(0, '[]', '{}', '[]', '{}', '{}', '{}');
    PERFORM {schema}.count{v}('{}', '{}');
    IF EXISTS (
        SELECT 1 FROM unnest(ARRAY['runs', 'turns', 'inbox', 'tags', 'sessions', 'counts', 'skew', 'heartbeats']) AS t (name)
        CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p (name)
        WHERE NOT has_table_privilege($q${schema}.$q$ || t.name, p.name)
    ) THEN
        RAISE insufficient_privilege;
    END IF;
    INSERT INTO {schema}.heartbeats (run, op, attempt, body)
    SELECT '', (random() * 1e15)::bigint, 0, string_agg(md5(random()::text || n), '')
    FROM generate_series(1, {bytes} / 32) AS n;
    RAISE EXCEPTION USING ERRCODE = 'OL003';
EXCEPTION WHEN SQLSTATE 'OL003' THEN
    NULL;
END
$probe$
