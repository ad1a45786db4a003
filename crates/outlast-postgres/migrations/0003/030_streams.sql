-- The streams of runs. `first` is the index of the first entry that is kept, `next` that of the next one. `closed_by` is
-- `workflow` or the number of a step's operation. `turn` is the last turn whose workflow wrote to the stream.
CREATE TABLE {schema}.streams (
    run       text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    first     bigint NOT NULL DEFAULT 0,
    next      bigint NOT NULL DEFAULT 0,
    closed_by text,
    keep_last bigint,
    dropped   bigint NOT NULL DEFAULT 0,
    late      bigint NOT NULL DEFAULT 0,
    turn      text,
    CONSTRAINT streams_pkey PRIMARY KEY (run, name)
) WITH (fillfactor = 50)
