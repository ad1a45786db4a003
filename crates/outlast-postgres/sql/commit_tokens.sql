-- Commits turns that take or free tokens, or reply to messages.
SELECT nth, code, detail, moment, rings FROM {schema}.commit_tokens{v}(
    $1, $2, $3::text::json, $4, $5::text::json, $6, $7::text::json, $8, $9::text::json, $10, $11, $12::text::json, $13,
    $14::text::json, $15, $16, $17, $18::text::json, $19::text::json, $20, $21, $22::text::json, $23, $24)
