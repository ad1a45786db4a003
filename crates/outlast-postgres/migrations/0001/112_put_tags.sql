-- Sets tags of a run; those of other names stay.
CREATE FUNCTION {schema}.put_tags(run_ text, names_ text[], values_ text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.tags (run, name, value)
    SELECT run_, tag.name, tag.value FROM unnest(names_, values_) AS tag (name, value)
    ON CONFLICT (run, name) DO UPDATE SET value = excluded.value;
END
$$
