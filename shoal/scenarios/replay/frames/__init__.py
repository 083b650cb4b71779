"""Replay of raw captures (`*.pcapng`): the same requests are sent again.

    source (frames in time) -> requests (new session ids, producer ids and topic ids) -> player -> sending
    ledger: the log must hold the same bytes, except what a broker writes into a batch

Only requests that a current broker accepts are sent; the others are counted.
"""
