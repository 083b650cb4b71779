"""Analyses of captured traffic with Spark (extra `[spark]`; the proxy imports none of it).

    captured files -> source/ -> rows -> one job's analysis -> tables -> scenarios/report

A job is a package: `analysis` has pure functions DataFrame -> DataFrame, `job` a short main, `report` the page. It runs
unchanged in process and on a cluster. Only `session` creates a Spark session, only `source/schema.py` defines a row.
`task` lists the jobs, `arguments` is their command line, `submit` sends one to a cluster. `columns` has rows as
columns; `folding` sums rows where they are read. `output` has what every job prints and writes.
"""
