"""The unwrapping listener: Produce requests of a mirror, with envelopes opened.

    Produce request -> plan -> schedule -> exchange with the broker -> fold -> answer

`path` has the flow from top to bottom; plan and schedule are pure (`protocol.shallow.unwrap`). `exchange` is the only
I/O loop, under `partition_locks`. `fold` turns findings into counters, proofs, ids and log lines, and `answer` makes
the mirror's answer. `producer_ids` gets Shoal's own producer ids; `reconciliation` compares envelopes with what was
appended, and `translation` stores which offsets their records got.
"""
