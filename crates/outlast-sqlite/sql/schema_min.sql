-- The lowest schema that a program must know to use the file.
SELECT schema_min FROM compatibility
