-- Gives the session one run that was just started.
SELECT code, run, workflow, version, turn, seq, turn_at, sent, consumed, crashes, deadline, is_overdue, moment,
    next_due, first_build, first_events FROM {schema}.claim_one($1, $2, $3, $4, $5, $6, $7)
