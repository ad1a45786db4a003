-- How many runs a session holds.
SELECT count(*) FROM runs WHERE owner = ?1
