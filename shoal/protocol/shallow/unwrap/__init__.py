"""Produce side: opens the envelopes of one produce request.

    record set ── plan ──> items ── schedule ──> requests to the broker
                                       ^            │
                  findings, outcomes <─┴─ answers <─┘

`plan` opens a partition's record set; it is pure. `schedule` decides which record sets share a request. `progress` is
one partition of it: what remains (`remaining`), is sent (`outgoing`), is in doubt and sent again (`replay`), and is
appended (`appended_items`). `findings` are results of the broker's answers. `reconcile` compares envelopes with what
was appended.

Shoal's own producer ids and sequences: `sequence`. Those of an idempotent or transactional mirror: `mirror_producers`
and `mirror_sequences`, stored in `sequence_slots`. `appended_log` knows what was appended, so that a retry appends
nothing twice.
"""
