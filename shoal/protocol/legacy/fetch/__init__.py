"""Fetch v0-v3 (KIP-283): a record set of magic 2 becomes messages of magic 0 or 1, piece by piece, while it is sent.

    fetch: request -> broker's version -> response -> down_conversion (a record set) -+-> batch_messages (magic 2)
                                                                                      +-> old_entry (magic 0 or 1)
    heads: the response around the record sets; overflow: pads a set to its promised size

`record_loop` is generated code over a `window` of a batch's records. `message_source` is the converters' common base,
`working` limits their memory, `counts` counts their work, `failure` says why a set cannot be converted further.
"""
