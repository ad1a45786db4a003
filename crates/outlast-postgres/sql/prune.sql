-- Deletes a part of the runs that ended before a time.
SELECT runs, next, has_leftovers FROM {schema}.prune{v}(
    $1, $2, $3, $4)
