-- Whether the run waits for the next attempt of a step. The holder writes it when it lets go of the run.
ALTER TABLE {schema}.runs ADD COLUMN retrying boolean NOT NULL DEFAULT false
