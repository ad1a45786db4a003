-- Gives the session runs that are ready.
SELECT code, run, workflow, version, turn, seq, turn_at, sent, consumed, crashes, kept, deadline, stuck_reason,
    stuck_message, stuck_build, failed_builds, failed_at, is_known, has_details, is_overdue, moment, next_due,
    first_build, first_events
FROM {schema}.claim{v}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
