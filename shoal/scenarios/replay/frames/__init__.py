"""Replay of raw captures (`*.pcapng`): the same requests are sent again.

    source (frames in time) -> requests (session ids, producer ids and topic ids made new) -> player -> sending
    ledger: the log must hold the same bytes, but for what a broker writes into a batch

Only requests that a broker of today takes are sent; the others are counted.
"""
