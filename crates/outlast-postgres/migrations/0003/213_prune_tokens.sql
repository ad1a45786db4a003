-- Deletes some tokens that are not kept any more, and some replies that are older than `kept_`.
CREATE FUNCTION {schema}.prune_tokens{v}(at_ bigint, kept_ bigint, limit_ integer) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ CONSTANT bigint := coalesce(at_, {schema}.clock{v}());
BEGIN
    DELETE FROM {schema}.tokens t WHERE t.hash IN (
        SELECT k.hash FROM {schema}.tokens k WHERE k.kept_until <= now_ ORDER BY k.kept_until LIMIT limit_);
    DELETE FROM {schema}.replies r USING (
        SELECT o.run, o.message FROM {schema}.replies o WHERE o.at <= now_ - kept_ ORDER BY o.at LIMIT limit_) o
    WHERE r.run = o.run AND r.message = o.message;
END
$$
