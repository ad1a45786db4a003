-- One row: the offset of the world's clock from the server's in microseconds, which tests set; the identity that
-- distinguishes this schema from others of the same name in other databases; and the lowest rules of all joined
-- sessions, null if none is joined.
CREATE TABLE {schema}.settings (
    one          boolean NOT NULL,
    clock_offset bigint  NOT NULL,
    identity     uuid    NOT NULL DEFAULT gen_random_uuid(),
    rules        integer,
    CONSTRAINT settings_pkey PRIMARY KEY (one),
    CONSTRAINT settings_one CHECK (one)
)
