-- Starts a run, from any language that can call a function. It begins when the transaction commits. A start with a
-- known key and the same workflow and input returns the run of that key. Returns the id of the run. The input is JSON,
-- passed as text, so that a plain literal selects this function among those of its name.
CREATE OR REPLACE FUNCTION {schema}.start_run(
    workflow text, input text DEFAULT 'null', key text DEFAULT NULL, version bigint DEFAULT 1,
    queue text DEFAULT 'default', priority integer DEFAULT 0, not_before timestamptz DEFAULT NULL,
    deadline timestamptz DEFAULT NULL, tags json DEFAULT NULL, headers json DEFAULT NULL
) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    now_ bigint := {schema}.clock{v}();
    bits_ numeric := {schema}.new_bits{v}(now_);
    input_ text := coalesce(input::json::text, 'null');
    run_ text := 'run_' || {schema}.base32{v}(bits_);
    deadline_ bigint := (extract(epoch FROM deadline) * 1000000)::bigint;
    event_ text;
    names_ text[];
    values_ text[];
    -- The newest rules that this schema knows, or lower ones if a joined worker knows only those.
    rules_ integer := least(2, (SELECT s.rules FROM {schema}.settings s));
    start_ json;
    answer_ record;
BEGIN
    IF workflow IS NULL OR octet_length(workflow) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'the workflow''s name is empty or longer than 128 bytes' USING ERRCODE = '22023';
    ELSIF octet_length(key) NOT BETWEEN 1 AND 256 THEN
        RAISE EXCEPTION 'the start key is empty or longer than 256 bytes' USING ERRCODE = '22023';
    ELSIF queue IS NULL OR octet_length(queue) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'the queue''s name is empty or longer than 128 bytes' USING ERRCODE = '22023';
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'the priority % is not between 0 and 9', priority USING ERRCODE = '22023';
    ELSIF version IS NULL OR version NOT BETWEEN 0 AND 4294967295 THEN
        RAISE EXCEPTION 'the version % is not one', version USING ERRCODE = '22023';
    ELSIF deadline_ <= now_ THEN
        RAISE EXCEPTION 'the deadline % is not after now', deadline USING ERRCODE = '22023';
    ELSIF deadline <= not_before THEN
        RAISE EXCEPTION 'the deadline % is not after %, when the run may begin', deadline, not_before USING ERRCODE = '22023';
    ELSIF octet_length(headers::text) > 16384 THEN
        RAISE EXCEPTION 'the headers have more than 16384 bytes' USING ERRCODE = '54000';
    END IF;
    PERFORM {schema}.check_payload{v}(input_);
    SELECT coalesce(array_agg(t.key), '{}'), coalesce(array_agg(t.value), '{}') INTO names_, values_
    FROM json_each_text(tags) AS t (key, value);
    IF cardinality(names_) > 32 OR EXISTS (SELECT 1 FROM unnest(names_, values_) AS t (name, value)
        WHERE octet_length(t.name) NOT BETWEEN 1 AND 128 OR octet_length(t.value) > 256 OR t.value IS NULL) THEN
        RAISE EXCEPTION 'there are more than 32 tags, or one that is too long or null' USING ERRCODE = '22023';
    END IF;
    event_ := '{"kind":"run_started","workflow":' || to_json(workflow) || ',"version":' || version || ',"format":' || least(rules_, 2)
        || CASE WHEN rules_ > 1 THEN ',"rules":' || rules_ ELSE '' END
        || coalesce(',"key":' || to_json(key), '')
        || CASE WHEN queue = 'default' THEN '' ELSE ',"queue":' || to_json(queue) END
        || CASE WHEN priority = 0 THEN '' ELSE ',"priority":' || priority END
        || ',"input":' || input_
        || coalesce(',"headers":' || headers, '')
        || CASE WHEN cardinality(names_) = 0 THEN '' ELSE ',"tags":' || json_object(names_, values_) END
        || coalesce(',"deadline":' || deadline_, '') || '}';
    start_ := json_build_object('run', run_, 'turn', 'turn_' || {schema}.base32{v}({schema}.new_bits{v}(now_)),
        'born', now_ / 1000, 'rules', rules_, 'workflow', {schema}.stored{v}(workflow), 'version', version,
        'format', least(rules_, 2), 'queue', {schema}.stored{v}(queue), 'priority', priority,
        'key', {schema}.stored{v}(key), 'digest', CASE WHEN key IS NOT NULL THEN {schema}.hex{v}({schema}.digest{v}(input_)) END,
        'not_before', (extract(epoch FROM not_before) * 1000000)::bigint, 'deadline', deadline_,
        'tags', CASE WHEN cardinality(names_) > 0 THEN json_object(
            ARRAY(SELECT {schema}.stored{v}(t.name) FROM unnest(names_) AS t (name)),
            ARRAY(SELECT {schema}.stored{v}(t.value) FROM unnest(values_) AS t (value))) END);
    SELECT s.code, s.run, s.workflow INTO answer_
    FROM {schema}.start{v}(NULL, json_build_array(start_), ARRAY['[' || event_ || ']'], true) AS s WHERE s.nth = 1;
    IF answer_.code = 'taken' THEN
        RAISE EXCEPTION 'the key "%" names run % of workflow "%", with another workflow or input',
            key, answer_.run, replace(answer_.workflow, U&'\E0001', U&'\E000') USING ERRCODE = '23505', HINT = 'choose another key';
    END IF;
    PERFORM {schema}.hint{v}();
    RETURN coalesce(answer_.run, run_);
END
$$
