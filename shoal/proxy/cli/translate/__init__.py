"""`shoal translate`: offsets and consumer groups between the source and the target of a mirror.

    state directory ── state ──> ranges ─┐
                                         ├─ translator ──> answers ── output ──> text, JSON, a file for Kafka's tool
    both clusters ──── read ──> records ─┘

The files of the state directory answer alone for all that Shoal appended from envelopes. For what a mirror copied raw,
the few records between two ranges are read at both clusters, if their addresses are known.
"""
