-- What attempts of lost workers said with their last heartbeats.
SELECT h.run, h.op, h.attempt, h.codec, h.body, h.raw FROM {schema}.heartbeats h WHERE h.run = ANY ($1) ORDER BY h.run, h.op
