-- The lowest rules that all joined sessions support; NULL if no session is joined.
SELECT min(rules) FROM sessions
