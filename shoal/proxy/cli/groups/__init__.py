"""`shoal groups sync`: committed offsets of consumer groups, copied as they are from a source to its mirror topics.

    source:  ListGroups ──> OffsetFetch ──────────────┐
                                                      ├─ decision ──> OffsetCommit at the target ──> report
    target:  probe of mirror topics, ListOffsets ─────┤
             ListGroups (states) ──> OffsetFetch ─────┘

`cli/asking/cluster_groups` asks the coordinators of one cluster, `target_logs` the leaders of partitions at the target.
`decision` says what happens to one offset, without I/O. `sync` goes through the groups, `report` has the words, and
`command` the flags.

Only the coordinator can know that a group has no members, so it decides: it refuses a commit from outside of a group
with members. What ListGroups says saves a request and gives the operator the reason.
"""
