-- Appends a turn to a history. If the session still holds the run after the turn, this is its only write.
INSERT INTO turns (run, seq, id, at, build, events) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
