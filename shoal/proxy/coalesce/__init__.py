"""A listener with `coalesce = true`: joins the Produce requests of many clients into few.

    client -> path -> client (its requests, in order) -> lane -> LaneClient -> broker
                                                           |
                                                 CoalescingPolicy of protocol.coalesce

`path` takes a request or lets it pass. A `lane` joins all requests for one broker and key; each of its tasks has its
own connection. `sets` gets the proof that a broker accepts several batches per partition. `index_rows` adds
rows for joined requests to the capture index, `counters` are the statistics.
"""
