"""A torture run: mirrors through Shoal under faults that a seed invents, on real brokers (`make torture SECONDS=600 SEED=7`).

    plan      seed -> what there is (clusters, topics, producers, mirrors, Shoal) and what happens to it (faults with times). Pure
    parts     a process that faults may kill, stop and freeze, and that runs again when the last of them lets go
    links     a TCP relay between two parts that can be cut, slowed down and frozen (half open)
    records   what producers write: every record carries its identity
    traffic   the producers -> ledger: what was written, what was acknowledged, which transactions were committed
    world     clusters, Shoal, mirrors, producers and relays of one round; the pool keeps clusters from round to round
    faults    the table of fault kinds: each changes the world for a while
    watch     what is noted meanwhile: end offsets by time, Shoal's memory, starts of the mirror's tasks
    judge     source, target and ledger -> findings, by what each mode promises. Pure
    logs      lines of Shoal's log that are warnings or errors -> those that no fault of the round explains. Pure
    index     files of Shoal's index -> damaged places
    round     one round: plan -> world -> faults -> all heals -> convergence -> verdict
    shrink    the shortest schedule that still fails. Pure but for the round that it is given
    report    build/torture/report.json

A round fails where a record is lost, altered, out of order, or there twice without a cause that the docs name; where an envelope is
left in a topic; where something hangs; where Shoal logs an error that nothing explains, or takes more memory than its bounds allow.
"""
