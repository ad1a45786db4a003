-- Deletes the tokens and replies of deleted runs.
CREATE TRIGGER forget_tokens AFTER DELETE ON {schema}.runs REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION {schema}.forget_tokens()
