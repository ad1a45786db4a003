-- `start_run` for an input of type json.
CREATE OR REPLACE FUNCTION {schema}.start_run(
    workflow text, input json, key text DEFAULT NULL, version bigint DEFAULT 1, queue text DEFAULT 'default',
    priority integer DEFAULT 0, not_before timestamptz DEFAULT NULL, deadline timestamptz DEFAULT NULL,
    tags json DEFAULT NULL, headers json DEFAULT NULL
) RETURNS text LANGUAGE sql AS $$
    SELECT {schema}.start_run(workflow, input::text, key, version, queue, priority, not_before, deadline, tags, headers)
$$
