-- Deletes turns of a run that no replay needs: those from $2 to $3, except those in $4.
DELETE FROM {schema}.turns WHERE run = $1 AND seq >= $2 AND seq < $3 AND seq <> ALL ($4)
