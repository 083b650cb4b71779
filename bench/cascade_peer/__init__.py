"""`python -m bench.cascade_peer`: the counters of `shoal spark cascade`, and the same ones by Kafka Streams.

    synthetic index files ──> shoal spark cascade ──────────────────────────> counters ─┐
              └──> a topic of one broker ──> CascadeStreams.java (`streams.py`) ──> counters ─┴──> must be equal

Both count records, bytes and batches by topic and client in windows of 1 m, 10 m, 1 h and 1 d; each level counts what
the one below has emitted. What is compared is the CPU time of each program's own processes from start to end, so the
broker is not part of it: Streams reads 24 bytes a row from the broker, in two threads, from a topic that has the rows
of a key in one partition already; the cascade reads whole index rows from files. The slope between two numbers of rows
has no start-up in it.
"""
