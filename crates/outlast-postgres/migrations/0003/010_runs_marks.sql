-- The marks of a run, as a set of bits: 1 paused, 2 compensating, 4 compensated, 8 in quarantine. Senders set and clear the
-- first, the holder the next two.
ALTER TABLE {schema}.runs ADD COLUMN marks integer NOT NULL DEFAULT 0
