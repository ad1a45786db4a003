-- Renews a session. No row means that it is gone.
SELECT held, moment FROM {schema}.beat(
    $1, $2, $3)
