-- How often the run has continued as a new generation.
ALTER TABLE {schema}.runs ADD COLUMN continued bigint NOT NULL DEFAULT 0
