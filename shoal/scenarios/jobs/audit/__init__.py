"""`shoal spark audit`: is the copy complete? Batches fetched from a source against batches produced to a target.

    job -> analysis (partitions, missing batches, minutes) -> report

Where Shoal unwrapped the batches, each source batch must be covered once. Otherwise records are counted per minute.
"""
