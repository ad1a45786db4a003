-- The reply of a run to a message; without an outcome if there is none.
SELECT p.outcome, p.at, p.codec, p.body, p.raw
FROM {schema}.runs r LEFT JOIN {schema}.replies p ON p.run = r.id AND p.message = $2 WHERE r.id = $1
