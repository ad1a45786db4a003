-- Notes that readers of a run need this format.
UPDATE runs SET format = ?2 WHERE id = ?1 AND format < ?2
