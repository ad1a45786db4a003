-- The fingerprint of that failure.
ALTER TABLE {schema}.runs ADD COLUMN fingerprint bigint
