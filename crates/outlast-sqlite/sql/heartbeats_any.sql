-- Whether anything is kept of any attempt: most claims need not look for it run by run.
SELECT EXISTS (SELECT 1 FROM heartbeats)
