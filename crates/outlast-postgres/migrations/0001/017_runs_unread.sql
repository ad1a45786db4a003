-- The runs with unread messages that a session holds.
CREATE INDEX runs_unread ON {schema}.runs (owner, id) WHERE owner IS NOT NULL AND sent > consumed
