-- Who is joined: for a look whether a takeover has anything to do, and for the sweep of lock files.
SELECT id, build, expires_at, time FROM sessions ORDER BY id
