-- The statements that drop the functions, and then the types, of a schema whose names match a pattern.
SELECT d.statement FROM (
    SELECT 1 AS place, p.oid, 'DROP FUNCTION ' || p.oid::regprocedure::text AS statement
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = $1 AND p.proname LIKE $2
    UNION ALL
    SELECT 2, t.oid, 'DROP TYPE ' || t.oid::regtype::text
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    WHERE n.nspname = $1 AND t.typname LIKE $2 AND t.typtype = 'c'
) d ORDER BY d.place, d.oid
