-- Raises the format that readers of a run need.
UPDATE runs SET format = ?2 WHERE id = ?1 AND format < ?2
