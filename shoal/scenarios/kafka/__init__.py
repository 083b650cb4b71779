"""Real brokers and real mirrors on one machine, for the demo, the tests and the benchmarks.

    jars      -> jvm -> process                          Kafka from Maven Central; child processes that never outlive us
    old_clients                                          clients from before Kafka 0.11
    settings  -> broker                                  KRaft clusters: start, kill, restart, add
    mirror                                               MirrorMaker 2
    topics, tools                                        admin calls; the command line tools out of the jars
    records   -> traffic                                 what is put into topics, and how it becomes batches
    reading   -> copies -> compare -> catchup            is the target what the source is?
    reading   -> scan                                    is there an envelope left in any topic?

Everything listens on loopback, at free ports, with data under a directory that the caller gives.
"""
