-- The number of the first event that a replay needs: the first event of the turn with the last cut.
ALTER TABLE {schema}.runs ADD COLUMN replay_from bigint NOT NULL DEFAULT 0
