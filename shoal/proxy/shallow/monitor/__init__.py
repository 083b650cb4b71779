"""How far each mirror of a wrapping listener is behind, and which source records it passes over.

    wrap path ── requests, answers ──┐
    unwrap path ── what arrives ─────┼──> `monitor` ──> log, statistics, state files
    `leaders` asks the source ───────┘    (protocol/shallow/monitor has the rules)

While a mirror fetches, the ends of the source's partitions are in its answers. Shoal asks the leaders itself for those
that are not: the mirror is stopped, or holds records back.
"""
