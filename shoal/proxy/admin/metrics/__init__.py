"""/metrics, for Prometheus.

    Server.statistics() ── snapshot ── table: one row per metric ── exposition ── page: text, in slices

A row of the table has the metric's name, type, labels, help text, and how to read it from a snapshot. docs/metrics.md
is generated from the same rows (`python -m tests.ops.reference`). No label is chosen by a client: topics are labels
of lag only with `admin.topic-labels`, and then at most `MOST_PARTITIONS` of a listener.
"""
