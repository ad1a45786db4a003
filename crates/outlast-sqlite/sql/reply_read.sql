-- The reply of a run to a message.
SELECT at, outcome, codec, body FROM replies WHERE run = ?1 AND message = ?2
