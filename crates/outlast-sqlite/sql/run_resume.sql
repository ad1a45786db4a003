-- Lets every build claim a run, including the builds that could not continue it.
UPDATE runs SET ready_at = ?2, failed_builds = '', failed_at = 0 WHERE id = ?1
