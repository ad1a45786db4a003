-- The published state of a run.
SELECT at, version, dropped, codec, body FROM states WHERE run = ?1
