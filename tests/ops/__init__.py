"""`make ops`: what operators rely on, shown by running it: metrics, and more sections beside them.

    __main__ ── table of sections ── each a module with `async def run(stage) -> dict` ── build/ops/report.json

`reference` writes docs/metrics.md from the table of metrics.
"""
