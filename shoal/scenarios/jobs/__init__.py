"""What Spark works out from captured traffic (extra `[spark]`; the proxy imports none of it).

    captured files -> source.py | raw_source.py | Parquet -> rows (schema.py) -> one job's transforms -> tables -> report.py

A job is pure functions DataFrame -> DataFrame in a file of its own and a main of some lines, so it runs unchanged in process and on
a cluster. `session.py` is the only place that makes a session; `schema.py` the only one that says what a row is.
"""
