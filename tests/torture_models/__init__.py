"""Models of mirrors, a Shoal and a target cluster, at thousands of schedules a minute: they reach states that are rare
on real brokers.

    source ── producer ── links ──[ UnwrapPath, Exchange, PartitionProgress: Shoal's own ]── links.upstream ── replicas
              (Java client)  (in place of sockets)                                    (leader, followers with a prefix)
    claims.py   the source, read again for claim checks: Shoal's own, without its requests
    world.py    all, and the steps: a request is taken, a follower copies, a leader moves, a connection ends, ...
    schedules.py    steps out of a seed, the verdict, the shortest part that still fails
    known.py    schedules that failed once
    machine.py  the same as a state machine of hypothesis

`python -m tests.torture_models --seconds 600 --seed 1` looks for the next fault and prints its shortest schedule.
"""
