-- `send_to` for a payload of type jsonb.
CREATE OR REPLACE FUNCTION {schema}.send_to(run text, hook text, payload jsonb, key text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    SELECT {schema}.send_to(run, hook, {schema}.compact{v}(payload), key)
$$
