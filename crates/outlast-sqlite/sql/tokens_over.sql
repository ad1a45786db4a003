-- Tokens that are not kept any more.
SELECT hash FROM tokens WHERE kept_until <= ?1 LIMIT ?2
