"""Produce v0-v2: a message set becomes one batch of magic 2, as a broker would convert it.

    request v0-v2 -> reading (messages of wrappers) -> up_conversion (a batch) -> request v3
                                                       response in the client's version <- response v3

`produce` reads and writes requests and responses, `up_conversion` converts one message set.
"""
