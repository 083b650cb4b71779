"""What is in topics.

    records -> traffic            what is put into topics, and how it becomes batches
    topics                        admin calls
    reading -> copies -> compare -> catchup      is the target what the source is?
    reading -> scan               is there an envelope left in any topic?

`clients` makes the librdkafka clients that all of these use.
"""
