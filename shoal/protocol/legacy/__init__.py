"""Clients of Kafka 0.8-0.10 on current brokers (KIP-283, KIP-896), without I/O.

    fetch/       Fetch v0-v3, and record sets of magic 2 as messages of magic 0 or 1
    produce/     Produce v0-v2, and message sets as batches of magic 2
    translate    other requests: the same request in a newer version
    versions     the versions that such a listener offers
    errors       error codes that an old client knows; answers applies them to responses that pass through

`message`, `reading` and `lz4_header` are the formats of magic 0 and 1, which fetch and produce share.
"""
