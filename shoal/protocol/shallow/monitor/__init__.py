"""What a mirror has copied of each source partition, how far it is behind, and what it has passed over.

    Fetch request     `asked`       the consumer's next offset        ┐
    Fetch answer      `observed`    first and last offset of the log  │  PartitionCopy ──> Lag
                      `given`       runs in envelopes, raw records    │  (partition)   ──> Gap
    Produce           `appended`    an envelope, at the target        │
                      `arrived`     plain records, by number          │
    Shoal's own       `observed`, `truncated`, `made_anew`            ┘

`in_transit` holds what was given and is not known to be appended, `source_log` the ends of the log over time, `gap`
what a mirror passes over. Nothing here changes what is mirrored.
"""
