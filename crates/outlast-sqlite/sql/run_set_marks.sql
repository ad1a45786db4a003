-- Sets the marks of a run.
UPDATE runs SET marks = ?2 WHERE id = ?1
