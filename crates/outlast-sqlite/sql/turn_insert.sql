-- Adds a turn to a history. The only write of a turn that goes on holding its run.
INSERT INTO turns (run, seq, id, at, build, events) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
