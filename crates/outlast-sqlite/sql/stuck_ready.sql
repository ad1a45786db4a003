-- Lets a build that has just joined try the runs of its queues that another build left stuck.
UPDATE runs SET ready_at = ?4
WHERE status = 'stuck' AND workflow = ?1 AND version = ?2 AND barred_build <> ?3 AND ready_at IS NULL
    AND queue IN (SELECT value FROM json_each(?5))
