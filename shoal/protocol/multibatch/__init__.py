"""Does a broker take several batches per partition in one Produce request? Proven before it is used.

    login -> probe -> trial (produce sets, read them back) -> proof -> known (what is known of every broker)

A `dialogue` is a generator that yields requests and is sent the answers, so nothing here does I/O. `messages` are
the requests of a probe, `sets` the record sets that it produces.
"""
