-- Deletes tokens that are not kept any more, and old replies.
SELECT {schema}.prune_tokens{v}($1, $2, $3)
