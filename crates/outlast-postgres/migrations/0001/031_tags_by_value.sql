-- Lists by tag.
CREATE INDEX tags_by_value ON {schema}.tags (name, value, run)
