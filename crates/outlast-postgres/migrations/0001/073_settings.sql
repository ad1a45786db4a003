-- One row: how far the world's clock is ahead of the server's, in microseconds, which tests set; by what this schema is
-- told from others of its name in other databases; and the lowest rules that every joined session knows, null when
-- none is joined.
CREATE TABLE {schema}.settings (
    one          boolean NOT NULL,
    clock_offset bigint  NOT NULL,
    identity     uuid    NOT NULL DEFAULT gen_random_uuid(),
    rules        integer,
    CONSTRAINT settings_pkey PRIMARY KEY (one),
    CONSTRAINT settings_one CHECK (one)
)
