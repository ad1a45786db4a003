-- Whether a run exists, the number of messages that it has consumed, and the first event that a replay needs.
SELECT consumed, replay_from FROM runs WHERE id = ?1
