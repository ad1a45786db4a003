-- One row: how far the world's clock is ahead of the server's, in microseconds. Tests set it.
CREATE TABLE {schema}.settings (
    one          boolean NOT NULL,
    clock_offset bigint  NOT NULL,
    CONSTRAINT settings_pkey PRIMARY KEY (one),
    CONSTRAINT settings_one CHECK (one)
)
