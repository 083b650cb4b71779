"""Requests and responses that Shoal reads or writes: one file per API, with its version notes at the top.

    frame -> walker (schema) -> a message whose record sets are slices of the frame -> splice -> frame

`sessions` resolves which partitions an incremental Fetch request covers (KIP-227). `shortcuts` answers questions about
the most common Produce and Fetch frames without a full read.
"""
