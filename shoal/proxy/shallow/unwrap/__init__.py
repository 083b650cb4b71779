"""The unwrapping listener: Produce requests of a mirror, with envelopes opened.

    Produce request -> plan -> schedule -> exchange with the broker -> fold -> answer

`path` tells the flow from top to bottom; plan and schedule are pure (`protocol.shallow.unwrap`). `exchange` is the only
I/O loop, under `partition_locks`. `fold` turns findings into counters, proofs, ids and log lines, and `answer` makes
the mirror's answer. `producer_ids` are Shoal's own; `reconciliation` compares envelopes with what was appended.
"""
