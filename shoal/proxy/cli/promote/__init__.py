"""`shoal promote`: mirror topics of the agent become ordinary topics, and every leader confirms it.

    Metadata (ids, leaders) ──> probe of each leader ──> some seconds later again: does a mirror still write?
    IncrementalAlterConfigs ──> Metadata, probe of each leader, until all answer that the topic is promoted

`cli/asking/survey` asks the leaders of all partitions once, `promotion` goes through the steps, `command` has the
flags. Every problem before IncrementalAlterConfigs ends the command, and nothing is changed.
"""
