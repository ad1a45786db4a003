-- Whether there is such a run, and what it has consumed.
SELECT consumed FROM {schema}.runs WHERE id = $1
