"""Shallow mirroring (KIP-712): a pair of listeners around a stock MirrorMaker 2.

    source broker -> fetch_path -> mirror -> produce_path -> target broker
                         |   runs of batches     |   envelopes are opened,
                         |   become envelopes    |   batches appended as they were
                         +------ interlock ------+

`fetch_path` holds an answer (`fetch_hold`), reads what was asked (`fetch_question`), and wraps. An answer that is
too large to hold is streamed unchanged (`fetch_streams`). `produce_path` plans each partition and runs an `exchange`
with the broker, under `partition_locks`, with stamps from `producer_ids`; `answer` makes one answer of many.
`files/` keep what must outlive a restart. The `interlock` permits envelopes only for a mirror that is proven to
produce through this pair. `books` compares what was sent with what was appended. `paths` pairs the listeners,
`cluster_pair` refuses a cluster that is paired with itself.
"""
