-- The latest moment that was seen.
SELECT at FROM clock
