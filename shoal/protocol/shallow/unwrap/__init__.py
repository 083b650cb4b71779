"""Produce side: what one produce request with envelopes becomes at the target.

    record set -> plan (items) -> ahead (what is left) -> parcel (one request's share of a partition)
               -> rounds (which parcels share a request) -> broker -> answers -> progress (one answer for the mirror)

After a lost connection `replay` sends again what is in doubt. Shoal's own producer ids and sequences: `sequence`.
Those of an idempotent or transactional mirror: `mirror_producers`, `mirror_sequences`, `restamp`, kept in
`sequence_slots`. `delivery` remembers what was appended, so that a retry appends nothing twice. `reconcile` compares
envelopes with what was appended. `plain` compresses batches that a mirror sends uncompressed.
"""
