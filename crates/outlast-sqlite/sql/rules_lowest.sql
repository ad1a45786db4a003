-- The lowest rules that every joined session knows; null when none is joined.
SELECT min(rules) FROM sessions
