"""Does a broker accept several batches per partition in one Produce request? Shoal proves it before using it.

    probe -> trial (produce sets, read them back) -> proof -> known_proofs (of all brokers)

A `dialogue` is a generator that yields requests and is sent the responses, so nothing here does I/O. `messages` has the
requests of a probe, `sets` the record sets that it produces.
"""
