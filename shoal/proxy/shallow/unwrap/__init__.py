"""The unwrapping listener: Produce requests of a mirror, with envelopes opened.

    Produce request -> plan -> schedule -> exchange with the broker -> fold -> answer

`path` has the flow from top to bottom. `planning` plans the record sets of a request; plan and schedule are pure
(`protocol.shallow.unwrap`). `exchange` is the only I/O loop, under `partition_locks`. `fold` turns findings into
counters, proofs, ids and log lines, and `answer` makes the mirror's answer. `target_state` is what is known of the
target from request to request: `producer_ids` gets Shoal's own producer ids, and `translation` stores which offsets
records got. `reconciliation` compares envelopes with what was appended; `copies` are those with their source's offsets.
"""
