-- Refuses a payload that the library would refuse: one that is too long, or nested too deeply.
CREATE FUNCTION {schema}.check_payload{v}(payload_ text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    brackets_ text;
    depth_ integer := 0;
BEGIN
    IF octet_length(payload_) > 4194304 THEN
        RAISE EXCEPTION 'the payload has % bytes, more than 4194304', octet_length(payload_)
            USING ERRCODE = '54000', HINT = 'store it elsewhere and pass its address';
    END IF;
    brackets_ := regexp_replace(regexp_replace(payload_, '"(\\.|[^"\\])*"', '', 'g'), '[^][{}]', '', 'g');
    IF length(brackets_) > 2 * 64 THEN
        FOR nth_ IN 1..length(brackets_) LOOP
            depth_ := depth_ + CASE WHEN substr(brackets_, nth_, 1) IN ('[', '{') THEN 1 ELSE -1 END;
            IF depth_ > 64 THEN
                RAISE EXCEPTION 'the payload is nested deeper than 64 levels'
                    USING ERRCODE = '54000', HINT = 'flatten it, or pass it as a text';
            END IF;
        END LOOP;
    END IF;
END
$$
