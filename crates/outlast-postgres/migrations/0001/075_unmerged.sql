-- Changes of counts and skew by transactions of users, which may stay open for long. They only append rows here, so
-- that no other transaction waits for them. Beats merge these rows into `counts` and `skew`.
CREATE TABLE {schema}.unmerged (
    id      bigint GENERATED ALWAYS AS IDENTITY,
    status  text COLLATE "C" NOT NULL,
    n       bigint NOT NULL,
    lowest  bigint NOT NULL,
    highest bigint NOT NULL,
    CONSTRAINT unmerged_pkey PRIMARY KEY (id)
)
