-- Publishes the state of a run. A repeated turn changes nothing; without a body only what was dropped is counted.
INSERT INTO states (run, turn, at, version, dropped, codec, body)
VALUES (?1, ?2, ?3, ?6 IS NOT NULL, ?4, ?5, ?6)
ON CONFLICT (run) DO UPDATE SET turn = excluded.turn, dropped = dropped + excluded.dropped,
    version = version + excluded.version,
    at = iif(excluded.body IS NULL, at, excluded.at),
    codec = iif(excluded.body IS NULL, codec, excluded.codec),
    body = coalesce(excluded.body, body)
WHERE turn <> excluded.turn
