-- Stores the lowest schema that a program must know to use the file.
INSERT INTO compatibility (id, schema_min) VALUES (1, ?1)
ON CONFLICT (id) DO UPDATE SET schema_min = excluded.schema_min
