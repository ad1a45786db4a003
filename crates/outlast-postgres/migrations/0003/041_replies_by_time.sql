-- Replies by time, for the deletion of old ones.
CREATE INDEX replies_by_time ON {schema}.replies (at)
