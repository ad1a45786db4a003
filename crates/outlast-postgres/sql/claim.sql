-- Gives the session runs that are ready.
SELECT code, run, workflow, version, turn, seq, turn_at, sent, consumed, crashes, deadline, is_overdue, moment,
    next_due, first_build, first_events FROM {schema}.claim(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
