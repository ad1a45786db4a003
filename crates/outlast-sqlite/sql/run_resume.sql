-- Makes a stuck run ready for every build, the one that left it so included.
UPDATE runs SET ready_at = ?2, barred_build = NULL WHERE id = ?1
