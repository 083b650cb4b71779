"""Produce side: what one produce request with envelopes becomes at the target.

    record set ── plan ──> items ── schedule ──> requests to the broker
                                       ^            │
                  findings, outcomes <─┴─ answers <─┘

`plan` opens a partition's record set, purely. `schedule` says which record sets share a request; `progress` is one
partition in it: what remains (`remaining`), goes out (`outgoing`), is in doubt and replayed (`replay`), and is appended
(`appended_items`). `findings` are what the broker's answers show. `reconcile` compares envelopes with what was
appended.

Shoal's own producer ids and sequences: `sequence`. Those of an idempotent or transactional mirror: `mirror_producers`,
`mirror_sequences`, kept in `sequence_slots`. `appended_log` remembers what was appended, so that a retry appends
nothing twice.
"""
