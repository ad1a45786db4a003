-- Gives the session one run that was just started.
SELECT code, run, workflow, version, turn, seq, turn_at, sent, consumed, crashes, kept, deadline, stuck_reason,
    stuck_message, stuck_build, failed_builds, failed_at, is_known, has_details, is_overdue, moment, next_due,
    first_build, first_events
FROM {schema}.claim_one{v}($1, $2, $3, $4, $5, $6, $7)
