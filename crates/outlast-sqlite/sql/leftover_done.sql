-- Nothing is left of a forgotten run.
DELETE FROM leftovers WHERE run = ?1
