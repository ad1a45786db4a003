-- Which of what a session holds has unread messages.
CREATE INDEX runs_unread ON {schema}.runs (owner, id) WHERE owner IS NOT NULL AND sent > consumed
