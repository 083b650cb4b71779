"""Produce v0-v2: a message set becomes one batch of magic 2, as a broker would convert it.

    request v0-v2 -> reading (messages out of wrappers) -> up (a batch) -> request v3 -> answer in the client's version

`produce` reads and writes the requests and answers, `up` converts one message set.
"""
