-- Sets tags of a run; tags with other names stay.
CREATE FUNCTION {schema}.put_tags{v}(run_ text, tags_ json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.tags (run, name, value)
    SELECT run_, tag.key, tag.value FROM json_each_text(tags_) AS tag (key, value)
    ON CONFLICT (run, name) DO UPDATE SET value = excluded.value;
END
$$
