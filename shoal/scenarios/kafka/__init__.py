"""Real brokers and real mirrors on one machine, for the demo, the tests and the benchmarks.

    java/     Kafka from Maven Central, Java processes, Kafka's command line tools
    security/ TLS, SASL, certificates, tokens
    broker    KRaft clusters (settings): start, kill, restart, add
    mirror    MirrorMaker 2
    content/  fill topics, read them, compare source and target
    metrics   request counters of brokers; segments: the batches in their files

`process` starts child processes that never outlive their parent, `ports` finds free ports. Everything listens on
loopback and keeps its data under a directory that the caller gives.
"""
