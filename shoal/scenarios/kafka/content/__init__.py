"""Contents of topics.

    records -> traffic            the records that fill topics, and how they become batches
    topics                        admin calls
    reading -> copies -> compare  does the target equal the source?
    reading -> scan               does any topic still contain an envelope?

`clients` creates the librdkafka clients that all of these use.
"""
