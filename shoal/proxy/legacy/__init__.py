"""A listener with `legacy = true`: clients of Kafka 0.8-0.10 on brokers that no longer support their requests.

    path -> fetch       Fetch v0-v3: session (one per connection) asks the broker, answer is filled piece by piece
         -> produce     Produce v0-v2: message sets become batches
         -> translated  other requests: the same request in a newer version

    session -> leased (record sets under conversion, paid for from budget) -> conversion (one record set) -> answer ->
    client

`rotation` decides which partition is next. `clients` logs clients with old versions; `counters` are the statistics.
"""
