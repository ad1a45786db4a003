-- One row: how far the world's clock is ahead of the server's, in microseconds, which tests set; and by what this
-- schema is told from others of its name in other databases.
CREATE TABLE {schema}.settings (
    one          boolean NOT NULL,
    clock_offset bigint  NOT NULL,
    identity     uuid    NOT NULL DEFAULT gen_random_uuid(),
    CONSTRAINT settings_pkey PRIMARY KEY (one),
    CONSTRAINT settings_one CHECK (one)
)
