"""The Grafana board and the alert rules of deploy/, written from one source; tried with Prometheus and promtool.

    alerts ───┬── rules ──── deploy/prometheus/shoal.rules.yaml, the same in the Helm chart
              ├── guide ──── docs/monitoring.md
    examples ─┴── trials ─── deploy/prometheus/shoal.rules.test.yaml: each alert fires, and does not
    board ──────── grafana ── deploy/grafana/shoal.json, the same in the Helm chart

    expressions   the names of metrics in PromQL; all are in the table of metrics
    prometheus    a real Prometheus that scrapes a real Shoal
    live          a section of `make ops`: a mirror, coalescing and legacy clients; every query has an answer
    charts        the board's panels as a picture, from what Prometheus has scraped

`python -m tests.ops.monitoring` writes the files.
"""
