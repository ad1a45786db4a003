-- Changes of counts and of the skew by transactions of others, which may stay open for long: they only append here,
-- so that nobody waits for them. Beats merge these rows into `counts` and `skew`.
CREATE TABLE {schema}.unmerged (
    id      bigint GENERATED ALWAYS AS IDENTITY,
    status  text COLLATE "C" NOT NULL,
    n       bigint NOT NULL,
    lowest  bigint NOT NULL,
    highest bigint NOT NULL,
    CONSTRAINT unmerged_pkey PRIMARY KEY (id)
)
