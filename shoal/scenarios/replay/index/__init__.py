"""Replay of an index (`*.kxb`), which has no records: batches of the same sizes are made up.

    source (index files) -> arrivals (which request, when, how large) -> player -> made_up (batches) -> sending

A made-up batch carries its number as its timestamp, so that the ledger can find it in the topic again.
"""
