"""What Spark works out from captured traffic (extra `[spark]`; the proxy imports none of it).

    captured files -> source/ -> rows -> one job's analysis -> tables -> report/

A job is a package: `analysis` has pure functions DataFrame -> DataFrame, `job` a main of some lines, `report` what
people read. It runs unchanged in process and on a cluster. `session` is the only place that makes a Spark session,
`source/schema.py` the only one that says what a row is. `task` lists the jobs, `arguments` is their command line,
`submit` sends one to a cluster. `bins` and `histograms` count values in bins; `folding` sums rows where they are
read.
"""
