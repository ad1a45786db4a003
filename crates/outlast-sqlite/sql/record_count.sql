-- The number of records of a space.
SELECT n FROM record_counts WHERE space = ?1
