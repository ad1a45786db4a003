-- The number of messages that a run has consumed; no row if the run does not exist.
SELECT consumed FROM {schema}.runs WHERE id = $1
