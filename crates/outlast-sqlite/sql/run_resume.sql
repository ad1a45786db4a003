-- Opens a run to every build, those that could not continue it included.
UPDATE runs SET ready_at = ?2, failed_builds = '', failed_at = 0 WHERE id = ?1
