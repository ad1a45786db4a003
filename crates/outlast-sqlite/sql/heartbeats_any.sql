-- Whether there are heartbeat details of any attempt. Usually there are none, and then a claim does not search for
-- those of each run.
SELECT EXISTS (SELECT 1 FROM heartbeats)
