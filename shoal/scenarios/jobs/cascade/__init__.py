"""`shoal spark cascade`: counters by client and topic in windows of 1 m, 10 m, 1 h and 1 d, kept up to date.

    rows -> combine -> processor (levels of cells: state of Spark) -> flows -> abnormal (suspects) -> report

`analysis` is the query, `streaming` runs it with a checkpoint, `job` is the command.
"""
