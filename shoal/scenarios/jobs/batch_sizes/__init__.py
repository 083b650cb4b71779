"""`shoal spark batch-sizes`: batch sizes, the clients of small batches, and their cost.

    rows -> fold (where they are read: sizes, gaps, by groups) -> analysis -> shares, costs -> report

`fold` and the modules that it uses need no Spark: they run in the workers that read the rows.
"""
