"""What an unwrap listener knows and must not forget over a restart, in files of the state directory.

    producers       sequences of idempotent and exactly-once mirrors: always up to date
    deliveries      what is appended of requests without an answer: from an orderly stop to the next start
    doubt           what was in flight without an answer: the same
    kept_lines      how deliveries and doubt are written and read

Damage, or a file of another cluster, is set aside; traffic goes on without it.
"""
