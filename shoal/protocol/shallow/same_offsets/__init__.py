"""Mirror topics: copies that keep the offsets of the source, in brokers with the Java agent.

    fetch side     place (where each mirror is)  ->  covers (envelopes without a gap between them)
    produce side   log_ends (where each copy ends)  ->  fenced (its batches, with fences, to the broker)

Everything is decided by offset, so nothing is stored here: a retry, a restart or a second mirror sends what the target
has already, and the target leaves it out. `places` has the places of all mirrors, and the partitions that wait.
"""
