"""Kafka's wire protocol and Shoal's rules, without I/O: bytes in, values out. No sockets, no clock (`now` is an
argument).

    wire -> schema -> records -> messages | transform -> shallow | coalesce | multibatch | legacy | capture

`wire` has the primitive types and errors, `schema` the message tables and the code generated from them, `records`
the record batches, `messages` the requests and answers that Shoal reads or writes, `transform` the edits that every
listener makes. Each feature is a package of its own and imports no other feature. Bytes from the network raise
`RemoteProtocolError` and nothing else.
"""
