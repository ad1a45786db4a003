-- A list of failed builds after one more build has failed: `FailedBuilds::with`. The list contains a build once; in a
-- full list the oldest one is replaced.
CREATE FUNCTION {schema}.failed_with{v}(list_ text, build_ text, max_ integer, OUT list text, OUT replaced_oldest boolean)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    builds_ text[] := '{}';
BEGIN
    IF list_ <> '' THEN
        builds_ := ARRAY(SELECT b.name FROM json_array_elements_text(list_::json) WITH ORDINALITY AS b (name, nth)
            WHERE b.name <> build_ ORDER BY b.nth);
    END IF;
    replaced_oldest := cardinality(builds_) >= max_;
    IF replaced_oldest THEN
        builds_ := builds_[2:];
    END IF;
    list := '[' || (SELECT string_agg(to_json(b.name)::text, ',' ORDER BY b.nth)
        FROM unnest(builds_ || build_) WITH ORDINALITY AS b (name, nth)) || ']';
END
$$
