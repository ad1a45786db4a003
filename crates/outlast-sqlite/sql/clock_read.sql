-- The latest time that a beat has saved.
SELECT at FROM clock
