"""The admin listener: health, status and metrics of a running Shoal, over HTTP.

    listener ── http ── pages ──┬── health   /livez, /readyz
    (port)     (h11)    (table) ├── status   /status: facts, as JSON
                                ├── masked   /config: the settings in effect, without secrets
                                └── metrics  /metrics: counters, for Prometheus

It is off unless `admin.listen` is set. It runs in the proxy's event loop, within a share of its time (`share`): a
hostile client of this port delays other clients of this port, and Kafka's clients hardly.

A new fact for /status goes into the `status()` of its owner (a path, a listener, a cluster); a new counter goes into
the owner's `statistics()`, and into the table in `metrics/table.py`, from which docs/metrics.md is generated.
"""
