"""A listener with `legacy = true`: clients of Kafka 0.8-0.10 on brokers that no longer know their requests.

    path -> fetch       Fetch v0-v3: reader (one per connection) asks the broker, answer is filled piece by piece
         -> produce     Produce v0-v2: message sets become batches
         -> translated  other requests: the same question in a newer version

    reader -> held (record sets under conversion, paid for from budget) -> source (one record set) -> answer -> client

`turns` decides which partition comes next, `staying` keeps the broker's connection open for a slow client. `clients`
logs who still uses old versions; `counters` are the statistics.
"""
