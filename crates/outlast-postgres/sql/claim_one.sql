-- Assigns one run that was just started to a session.
SELECT code, run, workflow, version, turn, seq, turn_at, sent, consumed, is_known, has_details, is_overdue, moment,
    next_due, next_deadline, first_build, first_events, {columns}
FROM {schema}.claim_one{v}($1, $2, $3, $4, $5, $6, $7)
