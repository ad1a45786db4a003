-- Records that all turns and messages of a deleted run are deleted.
DELETE FROM leftovers WHERE run = ?1
