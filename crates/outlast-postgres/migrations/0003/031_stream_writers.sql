-- The newest attempt of each operation that has written to a stream: its id, also as the session and the count of which
-- it consists; the index of the first entry that it may have written; and the number of chunks that it has written.
CREATE TABLE {schema}.stream_writers (
    run     text COLLATE "C" NOT NULL,
    op      bigint NOT NULL,
    stream  text COLLATE "C" NOT NULL,
    attempt text   NOT NULL,
    session text   NOT NULL,
    count   bigint NOT NULL,
    first   bigint NOT NULL,
    next    bigint NOT NULL,
    CONSTRAINT stream_writers_pkey PRIMARY KEY (run, op, stream)
) WITH (fillfactor = 50)
