"""`make bench-coalesce`: 200 producers of small records, directly, through a plain listener and through a coalescing one.

load        many librdkafka producers in one process (Producers.java: the same with the Java client)
crowd       both, as child processes that begin together
verify      every record that was acknowledged is there, once, in its producer's order
runs        one way at one load: requests and CPU of the broker, CPU of Shoal, latency of the clients
report      a table, and report.json
"""
