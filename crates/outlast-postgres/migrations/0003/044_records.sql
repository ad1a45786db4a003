-- Records: small documents beside the runs. A record has an id in a space. `at` is when it was stored last.
CREATE TABLE {schema}.records (
    space text COLLATE "C" NOT NULL,
    id    text COLLATE "C" NOT NULL,
    body  text   NOT NULL,
    at    bigint NOT NULL,
    CONSTRAINT records_pkey PRIMARY KEY (space, id)
)
