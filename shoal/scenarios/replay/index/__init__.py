"""Replay of an index (`*.kxb`), which has no records: synthetic batches have the same sizes.

    source (index files) -> arrivals (which request, when, how large) -> player -> synthetic_batches -> sending

A synthetic batch carries its number as its timestamp, so that the ledger can find it in the topic.
"""
