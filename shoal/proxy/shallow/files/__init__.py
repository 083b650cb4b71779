"""State of wrap and unwrap listeners that must survive a restart, in files of the state directory.

    mirrored        what mirrors have copied of each source partition
    gaps            what mirrors have passed over, and what is acknowledged of it
    producers       sequences of idempotent and exactly-once mirrors; always up to date
    deliveries      appended parts of requests; always up to date
    doubt           requests in flight that the broker did not answer; from an orderly stop to the next start
    offsets         which target offsets source records have; always up to date, for `shoal translate`
    kept_topics     topics that keep their offsets, and never become ordinary ones; always up to date
    kept_lines      the format of doubt
    open_file       how deliveries and offsets stay open

A damaged file, or one of another cluster, is set aside; traffic continues without it.
"""
