-- Distinguishes this schema from others of the same name.
SELECT identity::text FROM {schema}.settings
