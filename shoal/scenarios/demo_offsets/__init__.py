"""`make demo-offsets`: topics mirrored at the offsets of their source, and a consumer group that moves with them.

    plan -> traffic, source_topics (every kind) -> mirroring -> move (the group) -> compare, replicas -> report

Three source brokers, three target brokers with the agent, a stock MirrorMaker 2 behind `shoal mirror --same-offsets`.
`demo` runs all of it, `compaction` waits for the cleaner, `log_ends` for the target, `group` reads as a consumer group.
"""
