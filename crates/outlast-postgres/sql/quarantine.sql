-- Sets ($2) or clears a mark ($3) of a run. Returns the marks that it had before.
WITH before AS (SELECT id, marks FROM {schema}.runs WHERE id = $1 FOR NO KEY UPDATE),
changed AS (
    UPDATE {schema}.runs r SET marks = CASE WHEN $2 THEN r.marks | $3 ELSE r.marks & ~$3 END FROM before
    WHERE r.id = before.id
)
SELECT marks FROM before
