-- What tells this schema from others of its name.
SELECT identity::text FROM {schema}.settings
