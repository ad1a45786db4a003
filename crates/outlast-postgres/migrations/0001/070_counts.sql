-- The number of runs in each status, as the sum over all slots. Connections use different slots, so that they do not
-- wait for each other.
CREATE TABLE {schema}.counts (
    status text COLLATE "C" NOT NULL,
    slot   smallint NOT NULL,
    n      bigint   NOT NULL,
    CONSTRAINT counts_pkey PRIMARY KEY (status, slot)
) WITH (fillfactor = 50)
