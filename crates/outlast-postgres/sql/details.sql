-- The heartbeat details of attempts of lost workers.
SELECT h.run, h.op, h.attempt, h.codec, h.body, h.raw FROM {schema}.heartbeats h WHERE h.run = ANY ($1) ORDER BY h.run, h.op
