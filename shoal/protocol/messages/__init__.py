"""Requests and answers that Shoal reads or writes: one file per API, with its version notes at the top.

    frame -> walker (schema) -> a message whose record sets are slices of the frame -> splice -> frame

`sessions` knows which partitions a Fetch request means when it names only those that changed (KIP-227).
`produce_shortcuts` answers two questions about a Produce request without a full read.
"""
