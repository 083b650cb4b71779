"""The wrapping listener: Fetch answers of a mirror, with runs of batches in envelopes.

    Fetch request -> mirror_fetch -> broker -> answer -> hold -> review (interlock) -> wrap, splice, send -> commit

`path` tells the flow from top to bottom. `mirror_fetch` knows at which offset each partition was requested, `hold`
delays an answer while the interlock needs that, and `oversized` streams an answer that is too large to hold.
"""
