-- Deletes the streams and states of deleted runs.
CREATE TRIGGER forget_streams AFTER DELETE ON {schema}.runs REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION {schema}.forget_streams()
