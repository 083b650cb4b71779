"""A listener with `coalesce = true`: produce requests of many clients become few.

    client -> path -> member (its requests, in order) -> lane -> carrier -> broker
                                                           |
                                                 Joiner of protocol.coalesce

`path` takes a request or lets it pass. A `lane` joins everything for one broker and key; its tasks send over
connections of their own (`carrier`). `sets` asks for the proof that a broker takes several batches per partition.
`index_rows` adds rows for the joined requests to the capture index, `counters` are the statistics.
"""
