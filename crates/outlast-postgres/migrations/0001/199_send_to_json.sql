-- `send_to` for a payload of type json.
CREATE OR REPLACE FUNCTION {schema}.send_to(run text, hook text, payload json, key text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    SELECT {schema}.send_to(run, hook, payload::text, key)
$$
