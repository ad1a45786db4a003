-- Assigns ready runs to a session.
SELECT code, run, workflow, version, turn, seq, turn_at, sent, consumed, is_known, has_details, is_overdue, moment,
    next_due, next_deadline, first_build, first_events, {columns}
FROM {schema}.claim{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
