-- The marks of a run, as a set of bits: 1 paused, 2 compensating, 4 compensated, 8 in quarantine. A sender sets and clears
-- the first, the holder the next two.
ALTER TABLE runs ADD COLUMN marks INTEGER NOT NULL DEFAULT 0;
-- Lists and counts of runs with marks.
CREATE INDEX runs_marked ON runs (id, marks) WHERE marks <> 0;
