"""`make bench-coalesce`: 200 producers of small records, directly, and through a plain and a coalescing listener.

load        many librdkafka producers in one process (Producers.java: the same with the Java client)
crowd       both, as child processes that start together
verify      every acknowledged record is there, once, in its producer's order
runs        one setup at one load: requests and CPU of the broker, CPU of Shoal, latency of the clients
report      a table, and report.json
"""
