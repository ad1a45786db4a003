-- Deletes a reply.
DELETE FROM replies WHERE run = ?1 AND message = ?2
