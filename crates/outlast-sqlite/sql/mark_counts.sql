-- The marks of every run that has any. They are counted by the program: grouping them here would sort them.
SELECT marks, 1 FROM runs INDEXED BY runs_marked WHERE marks <> 0
