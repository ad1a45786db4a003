-- Histories, one row per event, for people: SELECT * FROM events WHERE run = 'run_…' ORDER BY seq. NUL, which Postgres
-- cannot show, is shown as U+FFFD.
CREATE VIEW {schema}.events (run, seq, at, kind, op, body) AS
SELECT turns.run, turns.seq + event.nth - 1, turns.at, event.value ->> 'kind', (event.value ->> 'op')::bigint, event.value
FROM {schema}.turns,
    json_array_elements(replace(turns.events, '\u0000', '\ufffd')::json) WITH ORDINALITY AS event (value, nth)
