-- Lets a build that has just joined try the runs that another build left stuck.
UPDATE runs SET ready_at = ?4
WHERE status = 'stuck' AND workflow = ?1 AND version = ?2 AND barred_build <> ?3 AND ready_at IS NULL
