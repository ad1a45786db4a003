-- How far ids and starts may lie apart, in milliseconds. No row when there never was a run.
SELECT lowest, highest FROM skew
