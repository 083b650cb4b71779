"""Mirror topics: read-only copies that the Java agent keeps at the offsets of the source, until they are promoted.

    messages.topics (ids, leaders) -> probe (what each leader says of its partitions) -> promotion (the broker config)
    log_start             -> DeleteRecords, where the source has deleted records

A topic is promoted when the cluster-wide dynamic broker config has a key with the topic's name, and the topic's id as
its value. KRaft replicates it to all brokers, in order with leader changes, so a new leader knows what the one before
it has confirmed. A topic that is created again has another id: it is a mirror topic again.
"""
