-- Records that some turns or messages of a deleted run still exist.
INSERT INTO leftovers (run) VALUES (?1) ON CONFLICT DO NOTHING
