"""`shoal spark batch-sizes`: how large batches are, who makes the small ones, and what these cost.

    rows -> fold (where they are read: sizes, gaps, by groups) -> analysis -> shares, costs -> report

`fold` and what it uses know no Spark: they run in the workers that read the rows.
"""
