-- Commits turns.
SELECT nth, code, detail, moment, rings FROM {schema}.commit{v}(
    $1, $2, $3::text::json, $4, $5::text::json, $6, $7::text::json, $8, $9::text::json, $10, $11)
