-- The first event that a replay needs, and how often the run has continued as a new generation.
ALTER TABLE runs ADD COLUMN replay_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN continued INTEGER NOT NULL DEFAULT 0;
