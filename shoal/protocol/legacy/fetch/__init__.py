"""Fetch v0-v3 (KIP-283): a record set of magic 2 becomes messages of magic 0 or 1, piece by piece, as it is sent.

    fetch: request -> broker's version -> answer -> down (one record set) -+-> batch_messages (a batch of magic 2)
                                                                           +-> old_entry (magic 0 or 1 in the log)
    heads: the answer around the record sets; overflow: fills a set to the size that was promised

`record_loop` is generated code over a `window` of a batch's records. `message_source` is what the converters share,
`working` what they may hold, `counts` what they did, `failure` why a set cannot be converted further.
"""
