"""A torture run: mirrors through Shoal under randomly drawn faults, on real brokers.

    plan, draw     seed -> set-up of a round (clusters, topics, producers, mirrors, Shoal) and its schedule of faults
    environment/   what faults hit: clusters (a pool keeps them between rounds), Shoal, mirrors, relays, disks, clocks
    clients/       producers, whose records carry identities -> ledger: what was written, acknowledged and committed
    faults         the table of fault kinds: each changes the world for a while
    judge/         source, target and ledger -> findings, by what each mode guarantees; Shoal's log and index, too.
                   `watch` records end offsets, Shoal's memory and task starts during the round
    round          one round: plan -> world -> faults -> healing -> convergence -> verdict
    shrink         the shortest schedule that still fails
    report         build/torture/report.json

`make torture SECONDS=600 SEED=7` runs rounds. A round fails if a record is lost, altered, out of order, or duplicated
without a cause that the docs name; if an envelope remains in a topic; if a process hangs; if Shoal logs an unexplained
error, or exceeds its memory limit.
"""
